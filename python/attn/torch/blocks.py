"""Block masks of FlexAttention. Attentions are computed from the mask_mod alone where the blocks of a block mask say
nothing beside it, for which they are compared; else also from a tensor of the blocks: joined_blocks.py."""

from __future__ import annotations

import enum
import math
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from attn.arguments import Sizes
from attn.attention import Attention
from attn.errors import BindingError
from attn.torch.signature import has_memory
from attn.torch.statistics import is_capturing

MOST_ELEMENTS = 1 << 24  # of a mask that are evaluated at a time
_ANY_LENGTH = 1 << 30  # the size of the only block of FlexAttention's mask that says nothing


class Grid(NamedTuple):
    """Blocks of rows and keys, and how many there are."""

    rows: int
    keys: int
    down: int
    across: int


def grid_of(block_mask: Any, sizes: Sizes) -> Grid:
    """The blocks of a block mask for attention of these sizes."""
    rows, keys = (min(one, length) for one, length in zip(block_mask.BLOCK_SIZE, (sizes.Sq, sizes.Skv)))
    return Grid(rows, keys, -(-sizes.Sq // rows), -(-sizes.Skv // keys))


def mask_of(block_mask: Any, sizes: Sizes) -> Callable[..., Any]:
    """The mask_mod of a block mask. Raises BindingError if it is not of these sizes, or was sliced."""
    known = _known.get(id(block_mask))
    if known is not None and known.is_like(block_mask, sizes):
        return block_mask.mask_mod
    return checked_mask(block_mask, sizes)


def checked_mask(block_mask: Any, sizes: Sizes) -> Callable[..., Any]:
    """`mask_of`, which looks at nothing that was known before."""
    mask_mod = getattr(block_mask, "mask_mod", None)
    if mask_mod is None:
        notes = ["a mask_mod is given by name: flex_attention(.., mask_mod=f)"] if callable(block_mask) else []
        raise BindingError(f"block_mask is a {type(block_mask).__name__}, not a BlockMask", notes)
    if getattr(mask_mod, "__name__", "") == "_sliced_mask_mod_error":
        raise BindingError(
            "block_mask is a slice of another one, which has no mask_mod any more",
            ["give the mask_mod of these rows: mask_mod=lambda b, h, q, kv: whole(b, h, q + first, kv)"],
        )
    lengths = tuple(block_mask.shape[-2:])
    if block_mask.BLOCK_SIZE[0] < _ANY_LENGTH and lengths != (sizes.Sq, sizes.Skv):
        raise BindingError(
            f"block_mask is of {lengths[0]} rows and {lengths[1]} keys, but query has {sizes.Sq} rows and key"
            f" {sizes.Skv}",
            ["make it for these lengths, create_block_mask(f, B, H, Sq, Skv), or give the mask_mod alone"],
        )
    batches = tuple(block_mask.kv_num_blocks.shape[:-1])
    if len(batches) != 2 or batches[0] not in (1, sizes.B) or batches[1] not in (1, sizes.Hq):
        raise BindingError(
            f"block_mask has the batches and heads {list(batches)}; query has [{sizes.B}, {sizes.Hq}]",
            ["either may be 1"],
        )
    if 0 not in sizes:
        _check_rows(block_mask, grid_of(block_mask, sizes))
    return mask_mod


def _check_rows(block_mask: Any, grid: Grid) -> None:
    for name in ("kv_indices", "full_kv_indices"):
        indices = getattr(block_mask, name, None)
        if indices is not None and indices.shape[-2] != grid.down:
            raise BindingError(
                f"block_mask has {indices.shape[-2]} rows of blocks; of {grid.rows} rows each, there are"
                f" {grid.down}"
            )


class Adds(enum.Enum):
    """What the blocks of a block mask say beside its mask_mod."""

    NOTHING = enum.auto()
    HIDES = enum.auto()  # they hide some of what it shows
    SHOWS = enum.auto()  # they also show some of what it hides, or that is not known


def added(
    block_mask: Any, query: torch.Tensor, sizes: Sizes, attention: Attention, tensors: Mapping[str, Any]
) -> Adds:
    """What the blocks say beside the mask_mod, as far as it can be known.

    `attention`, `tensors`: what the mods were traced to. A block mask is compared once: again only if it, the spec
    or what the mask reads of `tensors` changed. Where nothing can be compared (in a CUDA graph, with tensors that
    stand in for others, or if PyTorch cannot evaluate the mask_mod), blocks count for what they say. Raises
    BindingError for lists that are wrong.
    """
    if 0 in sizes:
        return Adds.NOTHING
    text, masks = attention.source.text, attention.described.facts["masks"]
    observed = _tensors_of(block_mask)
    observed.update((name, tensor) for name, tensor in tensors.items() if name in masks["reads"])
    if not has_memory(query) or not all(map(_can_be_read, observed.values())):
        return Adds.SHOWS
    capturing = query.is_cuda and is_capturing()
    if capturing and not masks["indexes"]:  # blocks are all there is, and the graph may be for others
        return Adds.SHOWS
    with _lock:
        known = _known.get(id(block_mask))
        if known is not None and known.is_of(block_mask, sizes, text, observed):
            return known.adds
        if capturing:
            return Adds.SHOWS
        with torch.no_grad():
            adds = _compare(block_mask, query.device, sizes, {"b", "h"} & {*masks["indexes"]})
            _known[id(block_mask)] = _Compared(block_mask, sizes, text, observed, adds)
    return adds


def _can_be_read(tensor: Any) -> bool:
    return not isinstance(tensor, torch.Tensor) or has_memory(tensor)


# --- what was compared before

_lock = threading.Lock()
_known: dict[int, _Compared] = {}


class _Compared:
    """A block mask that was compared with its mask_mod. `adds`: what it says beside it."""

    def __init__(self, block_mask: Any, sizes: Sizes, text: str, observed: Mapping[str, Any], adds: Adds):
        self.adds = adds
        key = id(block_mask)
        self._of = weakref.ref(block_mask, lambda _: _known.pop(key, None))
        self._mask_mod = block_mask.mask_mod
        self._blocks = block_mask.BLOCK_SIZE, block_mask.seq_lengths
        self._shape = block_mask.kv_indices.shape
        self._sizes, self._text = sizes, text
        self._states = {name: _State(tensor) for name, tensor in observed.items()}

    def is_of(self, block_mask: Any, sizes: Sizes, text: str, observed: Mapping[str, Any]) -> bool:
        if not self.is_like(block_mask, sizes) or self._text != text or self._states.keys() != observed.keys():
            return False
        for name, state in self._states.items():
            if not state.is_of(observed[name]):
                return False
        return True

    def is_like(self, block_mask: Any, sizes: Sizes) -> bool:
        """Whether it is this block mask, for these sizes, whatever its lists hold."""
        return (
            self._of() is block_mask
            and self._mask_mod is block_mask.mask_mod
            and self._sizes == sizes
            and self._blocks == (block_mask.BLOCK_SIZE, block_mask.seq_lengths)
            and self._shape == block_mask.kv_indices.shape
        )


class _State:
    """The elements of a tensor at one time."""

    def __init__(self, tensor: Any):
        self._elements = torch.as_tensor(tensor).detach().clone()
        self._note(tensor)

    def is_of(self, tensor: Any) -> bool:
        """Looks at elements, for which it waits, only if it is another tensor or was written to."""
        if self._tensor() is tensor:
            if self._counts and tensor._version == self._place[0] and tensor.data_ptr() == self._place[1]:
                return True
            if self._place == _place(tensor):
                return True
        if self._base() is _base(tensor) and self._place == _place(tensor):  # a view that was made again
            return True
        if torch.is_tensor(tensor) and tensor.is_cuda and is_capturing():
            return False
        elements = torch.as_tensor(tensor).detach()
        same = elements.dtype == self._elements.dtype and elements.device == self._elements.device
        if not same or not torch.equal(elements, self._elements):
            return False
        self._note(tensor)
        return True

    def _note(self, tensor: Any) -> None:
        self._tensor, self._base = weakref.ref(tensor), weakref.ref(_base(tensor))
        self._place = _place(tensor)
        self._counts = isinstance(self._place, tuple)


def _base(tensor: Any) -> Any:
    """What the views of a tensor share."""
    return tensor._base if isinstance(tensor, torch.Tensor) and tensor._base is not None else tensor


def _place(tensor: Any) -> Any:
    """Where its elements are, and a number that grows with each write; NaN, which equals nothing, where there
    is none."""
    if not isinstance(tensor, torch.Tensor) or tensor.is_inference():
        return math.nan
    return tensor._version, tensor.data_ptr(), tensor.shape, tensor.stride()


_LISTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")


def _tensors_of(block_mask: Any) -> dict[str, Any]:
    found = {}
    for name in _LISTS:
        if (tensor := getattr(block_mask, name, None)) is not None:
            found["." + name] = tensor
    return found


# --- comparing


class _Fails(Exception):
    """PyTorch cannot evaluate a mask_mod."""


def _compare(block_mask: Any, device: torch.device, sizes: Sizes, differs: set[str]) -> Adds:
    """`differs`: "b" and "h", if the mask differs between batches and heads."""
    grid = grid_of(block_mask, sizes)
    masked, whole = _listed(block_mask, grid, device)
    counts = (sizes.B if "b" in differs else 1, sizes.Hq if "h" in differs else 1)
    extents = tuple(max(one, other) for one, other in zip(counts, masked.shape))
    shape = (*extents, grid.down, grid.across)
    hidden, shown = (torch.zeros((), dtype=torch.bool, device=device) for _ in range(2))
    for batch in range(counts[0]):
        for head in range(counts[1]):
            at = tuple(slice(None) if count == 1 else slice(place, place + 1)
                       for place, count in zip((batch, head), counts))
            try:
                for first, some, every in _summaries(block_mask.mask_mod, (batch, head), sizes, grid, device):
                    part = (*at, slice(first, first + some.shape[0]))
                    full = whole.expand(shape)[part]
                    hidden |= (some & ~(full | masked.expand(shape)[part])).any()
                    shown |= (full & ~every).any()
            except _Fails:
                return Adds.SHOWS
    return Adds.SHOWS if shown else Adds.HIDES if hidden else Adds.NOTHING


def _listed(block_mask: Any, grid: Grid, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Which blocks are computed with the mask_mod, and which without: [batches, heads, down, across] each."""
    found = []
    for kind in ("", "full_"):
        counts = getattr(block_mask, f"{kind}kv_num_blocks", None)
        if counts is None:
            found.append(torch.zeros_like(found[0]))
            continue
        counts, indices = counts.to(device), getattr(block_mask, f"{kind}kv_indices").to(device).long()
        used = torch.arange(indices.shape[-1], device=device) < counts[..., None]
        beyond = used & ((indices < 0) | (indices >= grid.across))
        # What is not listed counts for a column that is not there.
        places = torch.where(used & ~beyond, indices, grid.across)
        times = torch.zeros((*indices.shape[:-1], grid.across + 1), dtype=torch.int32, device=device)
        times.scatter_add_(-1, places, torch.ones_like(places, dtype=torch.int32))
        found.append(times[..., : grid.across])
        if beyond.any() or (counts > indices.shape[-1]).any():
            raise BindingError(f"block_mask lists blocks beyond its {grid.across} blocks of {grid.keys} keys")
    if (found[0] + found[1] > 1).any():
        raise BindingError("block_mask lists a block twice: its keys would count twice")
    return found[0] > 0, found[1] > 0


def _summaries(
    mask_mod: Callable[..., Any], at: tuple[int, int], sizes: Sizes, grid: Grid, device: torch.device
) -> Any:
    """Goes through the rows of blocks, some at a time. Yields the first row, and for each block whether the mask
    shows some of it, and whether all of it."""
    from torch.nn.attention.flex_attention import create_mask

    together = max(1, MOST_ELEMENTS // (grid.rows * sizes.Skv))
    for first in range(0, grid.down, together):
        start = first * grid.rows
        length = min(sizes.Sq, (first + together) * grid.rows) - start

        def part(b: Any, h: Any, q_idx: Any, kv_idx: Any, start: int = start) -> Any:
            return mask_mod(b + at[0], h + at[1], q_idx + start, kv_idx)

        try:
            mask = create_mask(part, 1, 1, length, sizes.Skv, device=device)[0, 0].bool()
        except Exception as error:
            raise _Fails from error
        yield first, _blocks(mask, grid, False).any(3).any(1), _blocks(mask, grid, True).all(3).all(1)


def _blocks(mask: torch.Tensor, grid: Grid, beyond: bool) -> torch.Tensor:
    """[down, rows, across, keys] of a mask, with `beyond` after its last row and key."""
    missing = (-mask.shape[0] % grid.rows, grid.across * grid.keys - mask.shape[1])
    padded = torch.nn.functional.pad(mask, (0, missing[1], 0, missing[0]), value=beyond)
    return padded.unflatten(1, (grid.across, grid.keys)).unflatten(0, (-1, grid.rows))
