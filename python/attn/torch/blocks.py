"""Block masks of FlexAttention. Attentions here are computed from the mask_mod; the blocks of a block mask are
compared with it, and refused where they say something else."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from attn.arguments import Sizes
from attn.attention import Attention
from attn.errors import BindingError
from attn.torch.statistics import is_capturing

MOST_ELEMENTS = 1 << 24  # of a mask that are evaluated at a time
_ANY_LENGTH = 1 << 30  # the size of the only block of FlexAttention's mask that says nothing


def mask_of(block_mask: Any, sizes: Sizes) -> Callable:
    """The mask_mod of a block mask. Raises BindingError if it is not of these sizes, or was sliced."""
    mask_mod = getattr(block_mask, "mask_mod", None)
    if mask_mod is None:
        raise BindingError(f"block_mask is a {type(block_mask).__name__}, not a BlockMask")
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
    return mask_mod


def check(
    block_mask: Any, query: torch.Tensor, sizes: Sizes, attention: Attention, tensors: Mapping[str, Any]
) -> None:
    """Raises BindingError if the blocks hide what the mask_mod shows, or show what it hides.

    `attention`, `tensors`: what the mods were traced to. A block mask is compared once: again only if it, the spec
    or what the mask reads of `tensors` changed.
    """
    if 0 in sizes or "Fake" in type(query).__name__:
        return
    text, masks = attention.source.text, attention.described.facts["masks"]
    observed = _tensors_of(block_mask)
    observed.update((name, tensor) for name, tensor in tensors.items() if name in masks["reads"])
    with _lock:
        known = _known.get(id(block_mask))
        if known is not None and known.is_of(block_mask, sizes, text, observed):
            return
        if query.is_cuda and is_capturing():
            raise BindingError(
                "block_mask was not compared with its mask_mod yet, which a CUDA graph cannot do",
                ["call flex_attention with it before the capture"],
            )
        with torch.no_grad():
            _compare(block_mask, query.device, sizes, {"b", "h"} & {*masks["indexes"]})
            _known[id(block_mask)] = _Compared(block_mask, sizes, text, observed)


# --- what was compared before

_lock = threading.Lock()
_known: dict[int, _Compared] = {}


class _Compared:
    """A block mask that says what its mask_mod says."""

    def __init__(self, block_mask: Any, sizes: Sizes, text: str, observed: Mapping[str, Any]):
        key = id(block_mask)
        self._of = weakref.ref(block_mask, lambda _: _known.pop(key, None))
        self._mask_mod = block_mask.mask_mod
        self._sizes, self._text = sizes, text
        self._states = {name: _State(tensor) for name, tensor in observed.items()}

    def is_of(self, block_mask: Any, sizes: Sizes, text: str, observed: Mapping[str, Any]) -> bool:
        return (
            self._of() is block_mask
            and self._mask_mod is block_mask.mask_mod
            and self._sizes == sizes
            and self._text == text
            and self._states.keys() == observed.keys()
            and all(state.is_of(observed[name]) for name, state in self._states.items())
        )


class _State:
    """The elements of a tensor at one time."""

    def __init__(self, tensor: Any):
        self._elements = torch.as_tensor(tensor).detach().clone()
        self._note(tensor)

    def is_of(self, tensor: Any) -> bool:
        """Looks at elements, for which it waits, only if it is another tensor or was written to."""
        if self._tensor() is tensor and self._place == _place(tensor):
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


class _Grid(NamedTuple):
    """Blocks of rows and keys, and how many there are."""

    rows: int
    keys: int
    down: int
    across: int


def _compare(block_mask: Any, device: torch.device, sizes: Sizes, differs: set[str]) -> None:
    """`differs`: "b" and "h", if the mask differs between batches and heads."""
    rows, keys = (min(one, length) for one, length in zip(block_mask.BLOCK_SIZE, (sizes.Sq, sizes.Skv)))
    grid = _Grid(rows, keys, -(-sizes.Sq // rows), -(-sizes.Skv // keys))
    masked, whole = _listed(block_mask, grid, device)
    counts = (sizes.B if "b" in differs else 1, sizes.Hq if "h" in differs else 1)
    extents = tuple(max(one, other) for one, other in zip(counts, masked.shape))
    hidden = torch.zeros((*extents, grid.down, grid.across), dtype=torch.bool, device=device)
    shown = hidden.clone()
    for batch in range(counts[0]):
        for head in range(counts[1]):
            at = tuple(slice(None) if count == 1 else slice(place, place + 1)
                       for place, count in zip((batch, head), counts))
            for first, some, every in _summaries(block_mask.mask_mod, (batch, head), sizes, grid, device):
                part = (*at, slice(first, first + some.shape[0]))
                full = whole.expand(hidden.shape)[part]
                hidden[part] = some & ~(full | masked.expand(hidden.shape)[part])
                shown[part] = full & ~every
    if (hidden | shown).any():
        _refuse(block_mask, hidden, shown, grid)


def _listed(block_mask: Any, grid: _Grid, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Which blocks are computed with the mask_mod, and which without: [batches, heads, down, across] each."""
    found = []
    for kind in ("", "full_"):
        counts = getattr(block_mask, f"{kind}kv_num_blocks", None)
        if counts is None:
            found.append(torch.zeros_like(found[0]))
            continue
        counts, indices = counts.to(device), getattr(block_mask, f"{kind}kv_indices").to(device).long()
        if indices.shape[-2] != grid.down:
            raise BindingError(
                f"block_mask has {indices.shape[-2]} rows of blocks; of {grid.rows} rows each, there are"
                f" {grid.down}"
            )
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


def _summaries(mask_mod: Callable, at: tuple[int, int], sizes: Sizes, grid: _Grid, device: torch.device) -> Any:
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
            raise BindingError(
                f"the blocks of block_mask cannot be compared with its mask_mod, which fails: {error}",
                ["give the mask_mod alone: flex_attention(.., mask_mod=f)"],
            ) from error
        yield first, _blocks(mask, grid, False).any(3).any(1), _blocks(mask, grid, True).all(3).all(1)


def _blocks(mask: torch.Tensor, grid: _Grid, beyond: bool) -> torch.Tensor:
    """[down, rows, across, keys] of a mask, with `beyond` after its last row and key."""
    missing = (-mask.shape[0] % grid.rows, grid.across * grid.keys - mask.shape[1])
    padded = torch.nn.functional.pad(mask, (0, missing[1], 0, missing[0]), value=beyond)
    return padded.unflatten(1, (grid.across, grid.keys)).unflatten(0, (-1, grid.rows))


def _refuse(block_mask: Any, hidden: torch.Tensor, shown: torch.Tensor, grid: _Grid) -> None:
    batch, head, row, column = (hidden | shown).nonzero()[0].tolist()
    rows = f"{row * grid.rows} to {(row + 1) * grid.rows - 1}"
    keys = f"{column * grid.keys} to {(column + 1) * grid.keys - 1}"
    what = "hides a block, of which its mask_mod shows something"
    if not hidden[batch, head, row, column]:
        what = "shows a whole block, of which its mask_mod hides something"
    dims = block_mask.kv_num_blocks.shape
    where = ", ".join(["0" if dims[0] == 1 else "b", "0" if dims[1] == 1 else "h"])
    raise BindingError(
        f"block_mask {what}: rows {rows}, keys {keys}, batch {batch}, head {head}",
        [
            "attentions are computed from the mask_mod, and what the blocks say beside it is not",
            "say it there: with `listed = block_mask.to_dense().bool()`,"
            f" mask_mod=lambda b, h, q, kv: listed[{where}, q // {grid.rows}, kv // {grid.keys}] & ..",
        ],
    )
