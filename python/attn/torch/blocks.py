"""Block masks of FlexAttention. Attentions are computed from the mask_mod alone where the blocks of a block mask say
nothing beside it, for which they are compared; else also from a tensor of the blocks: joined_blocks.py."""

from __future__ import annotations

import enum
import functools
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from attn.arguments import Sizes
from attn.attention import Attention
from attn.errors import BindingError
from attn.torch.signature import has_memory
from attn.torch.statistics import is_capturing
from attn.tracing.recipes import Recipe

LISTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
MOST_ELEMENTS = 1 << 24  # of a mask that are evaluated at a time
MOST_KEPT = 16  # masks that one block mask was compared with
ANY_LENGTH = 1 << 30  # the size of the only block of FlexAttention's mask that says nothing


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


def lists_of(block_mask: Any) -> dict[str, torch.Tensor | None]:
    """The lists of a block mask by their names."""
    return {name: getattr(block_mask, name, None) for name in LISTS}


def unwritten(block_mask: Any, sizes: Sizes) -> _Compared | None:
    """What is known of a block mask that was compared for these very sizes (`sizes` is looked up by identity), if
    neither it nor its lists changed since."""
    known = _known.get(id(block_mask))
    return known if known is not None and known.is_unwritten(block_mask, sizes) else None


def checked_mask(block_mask: Any, sizes: Sizes) -> Callable[..., Any]:
    """The mask_mod of a block mask. Raises BindingError if it is not of these sizes, or was sliced."""
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
    if block_mask.BLOCK_SIZE[0] < ANY_LENGTH and lengths != (sizes.Sq, sizes.Skv):
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
    found: Callable[..., Any] = mask_mod
    return found


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
    block_mask: Any, query: torch.Tensor, sizes: Sizes, attention: Attention, reads: Callable[[str], Mapping[str, Any]]
) -> Adds:
    """What the blocks say beside the mask_mod, as far as it can be known.

    `attention`: what the mods were traced to; `reads(name)`: of what a tensor of it is made, by names. A block mask is
    compared once for each mask and sizes: again only if it, or what the mask reads, changed. What is written where
    PyTorch does not count it (through `.data`, NumPy, DLPack or kernels of the user) is not seen:
    torch.autograd.graph.increment_version(tensor) says it. Where nothing can be compared (in a CUDA graph, with tensors
    that stand in for others, or if PyTorch cannot evaluate the mask_mod), blocks count for what they say. Raises
    BindingError for lists that are wrong.
    """
    if 0 in sizes:
        return Adds.NOTHING
    masks = attention.described.facts["masks"]
    made = {name: value for each in masks["reads"] for name, value in reads(each).items()}
    recipes = tuple(value for value in made.values() if isinstance(value, Recipe))
    observed = {name: value for name, value in made.items() if not isinstance(value, Recipe)}
    observed.update((f".{name}", x) for name, x in lists_of(block_mask).items() if x is not None)
    if not has_memory(query) or not all(map(_can_be_read, observed.values())):
        return Adds.SHOWS
    capturing = query.is_cuda and is_capturing()
    if capturing and not masks["indexes"]:  # blocks are all there is, and the graph may be for others
        return Adds.SHOWS
    of = _of_mask(attention.source.text, tuple(masks["reads"])), _extents(sizes), query.device, recipes
    with _lock:
        known = _known.get(id(block_mask))
        if known is None or not known.is_of(block_mask):
            known = None if capturing else _Compared(block_mask)
            if known is not None:
                _known[id(block_mask)] = known
        adds = None if known is None else known.find(of, observed)
        if adds is None and capturing or known is None:
            return Adds.SHOWS
        if adds is None:
            with torch.no_grad():
                adds = _compare(block_mask, query.device, sizes, {"b", "h"} & {*masks["indexes"]})
                known.note(of, observed, adds)
        if adds is Adds.NOTHING and masks["indexes"] and not recipes:
            known.note_short(block_mask, sizes, attention, [(name, made[name]) for name in masks["reads"]])
    return adds


def _can_be_read(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or has_memory(value)


def _extents(sizes: Sizes) -> tuple[int, ...]:
    """Those on which a mask depends."""
    return sizes.B, sizes.Hq, sizes.Sq, sizes.Skv


@functools.lru_cache(maxsize=1024)
def _of_mask(text: str, reads: tuple[str, ...]) -> tuple[str, ...]:
    """The clauses of a traced spec that say its masks, and declare what these read."""
    clauses = [" ".join(each.split()) for each in re.split(r"\n  (?! )", text)[1:]]
    lets = {each.split()[1]: each for each in clauses if each.startswith("let ")}
    found = [each for each in clauses if each.startswith("mask ")]
    for clause in found:  # which grows by the lets that are named in it
        for word in re.findall(r"\w+", clause.partition(" ")[2]):
            if word in lets:
                found.append(lets.pop(word))
    return (*found, *(each for each in clauses for name in reads
                      if each.startswith(("tensor ", "learn ")) and each.split()[1] == f"{name}:"))


# --- what was compared before

_lock = threading.Lock()
_known: dict[int, _Compared] = {}


class _Compared:
    """A block mask, and what it says beside each mask that it was compared with."""

    def __init__(self, block_mask: Any):
        key = id(block_mask)
        self._of: Callable[[], Any] = weakref.ref(block_mask, lambda _: _known.pop(key, None))
        self._mask_mod = block_mask.mask_mod
        self._blocks = block_mask.BLOCK_SIZE, block_mask.seq_lengths
        self._shapes = _shapes(block_mask)
        self._found: OrderedDict[Any, tuple[dict[str, _State], Adds]] = OrderedDict()
        self._sizes: Sizes | None = None
        self._lists: list[tuple[str, Place | None]] = []
        self._short: dict[int, tuple[Any, list[tuple[str, Place]]]] = {}  # by the ids of attentions

    def note_short(self, block_mask: Any, sizes: Sizes, attention: Attention, read: list[tuple[str, Any]]) -> None:
        """Keeps, for `follows`, that it says nothing beside the mask of an attention, which reads these tensors by
        name, where PyTorch counts what is written to all of them."""
        lists = [(name, None if x is None else Place.of(x)) for name, x in lists_of(block_mask).items()]
        places = [(name, place) for name, x in read if (place := Place.of(x)) is not None]
        if len(places) < len(read) or any(
                place is None and getattr(block_mask, name, None) is not None for name, place in lists):
            return
        if self._sizes is not sizes or self._lists != lists or len(self._short) >= MOST_KEPT:
            self._short = {}
        self._sizes, self._lists = sizes, lists
        self._short[id(attention)] = weakref.ref(attention), places

    def is_unwritten(self, block_mask: Any, sizes: Sizes) -> bool:
        """Whether it is this block mask with the lists that `note_short` knows, for these very sizes."""
        if (
            self._sizes is not sizes
            or self._of() is not block_mask
            or self._mask_mod is not block_mask.mask_mod
            or self._blocks != (block_mask.BLOCK_SIZE, block_mask.seq_lengths)
        ):
            return False
        for name, place in self._lists:
            x = getattr(block_mask, name)
            if place is None:
                if x is not None:
                    return False
                continue
            tensor, version, address = place  # as Place.is_of, at once
            if tensor() is not x or x is None or x._version != version or x.data_ptr() != address:
                return False
        return True

    def follows(self, attention: Attention, captured: Mapping[str, Any]) -> bool:
        """Whether it is known to say nothing beside the mask of an attention with these captured tensors."""
        of, places = self._short.get(id(attention), _NOTHING_SHORT)
        if of() is not attention:
            return False
        for name, place in places:
            if not place.is_of(captured[name]):
                return False
        return True

    def find(self, of: Any, observed: Mapping[str, Any]) -> Adds | None:
        """What it says beside a mask, None if that is not known, or something was written to since."""
        states, adds = self._found.get(of, ({}, None))
        if states.keys() != observed.keys() or not all(state.is_of(observed[name]) for name, state in states.items()):
            return None
        return adds

    def note(self, of: Any, observed: Mapping[str, Any], adds: Adds) -> None:
        """Keeps what it says beside a mask, and copies of what is `observed`: one for all masks."""
        shared = [states for states, _ in self._found.values()]
        states = {}
        for name, value in observed.items():
            same = (one[name] for one in shared if name in one and one[name].is_of(value))
            states[name] = next(same, None) or _State(value)
        self._found[of] = states, adds
        self._found.move_to_end(of)
        while len(self._found) > MOST_KEPT:
            self._found.popitem(last=False)

    def is_of(self, block_mask: Any) -> bool:
        """Whether it is this block mask, and only the elements of its lists may have changed."""
        return (
            self._of() is block_mask
            and self._mask_mod is block_mask.mask_mod
            and self._blocks == (block_mask.BLOCK_SIZE, block_mask.seq_lengths)
            and self._shapes == _shapes(block_mask)
        )


def _shapes(block_mask: Any) -> list[Any]:
    return [None if x is None else x.shape for x in lists_of(block_mask).values()]


def _nothing() -> None:
    """A reference to nothing."""


_NOTHING_SHORT: tuple[Any, list[tuple[str, Place]]] = (_nothing, [])


class Place(NamedTuple):
    """A tensor that was not written to since: PyTorch counts the changes of its shape, too."""

    tensor: weakref.ref[torch.Tensor]
    version: int
    address: int

    @classmethod
    def of(cls, tensor: Any) -> Place | None:
        """Where a tensor is now; None if nothing is counted."""
        if not isinstance(tensor, torch.Tensor) or tensor.is_inference():
            return None
        return cls(weakref.ref(tensor), tensor._version, tensor.data_ptr())

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Whether it is this tensor, as it was."""
        known = self.tensor()
        return (known is tensor and known is not None and known._version == self.version
                and known.data_ptr() == self.address)


class _State:
    """The elements of a tensor or an array at one time."""

    def __init__(self, tensor: Any):
        self._elements = torch.as_tensor(tensor).detach().clone()
        self._note(tensor)

    def is_of(self, tensor: Any) -> bool:
        """Looks at elements, for which it waits, only if it is another tensor or was written to."""
        place = place_of(tensor)
        if place is not None and place == self._place and (
            self._tensor() is tensor or self._base() is _base(tensor)  # a view that was made again
        ):
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
        self._place = place_of(tensor)


def _base(tensor: Any) -> Any:
    """What the views of a tensor share."""
    return tensor._base if isinstance(tensor, torch.Tensor) and tensor._base is not None else tensor


def place_of(tensor: Any) -> Any:
    """Where the elements of a tensor are, and a number that grows with each write; None where none are counted."""
    if not isinstance(tensor, torch.Tensor) or tensor.is_inference():
        return None
    return tensor._version, tensor.data_ptr(), tensor.shape, tensor.stride()


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
    masked, whole = masked.expand(shape), whole.expand(shape)
    hidden, shown = (torch.zeros((), dtype=torch.bool, device=device) for _ in range(2))
    try:
        for batches, heads, rows, some, every in _summaries(block_mask.mask_mod, counts, sizes, grid, device):
            part = tuple(slice(None) if count == 1 else at for count, at in zip(counts, (batches, heads))) + (rows,)
            hidden |= (some & ~(whole[part] | masked[part])).any()
            shown |= (whole[part] & ~every).any()
    except _Fails:
        return Adds.SHOWS
    return Adds.SHOWS if shown else Adds.HIDES if hidden else Adds.NOTHING


def places_of(counts: torch.Tensor, indices: torch.Tensor, across: int) -> tuple[torch.Tensor, torch.Tensor]:
    """For each index of a list the column that it lists, int64, `across` for none; and whether it lists one that is not
    there."""
    used = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
    beyond = used & ((indices < 0) | (indices >= across))
    return torch.where(used & ~beyond, indices.long(), across), beyond


def _listed(block_mask: Any, grid: Grid, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Which blocks are computed with the mask_mod, and which without: [batches, heads, down, across] each."""
    found: list[torch.Tensor] = []
    lists = [None if x is None else x.to(device) for x in lists_of(block_mask).values()]
    for counts, indices in (lists[:2], lists[2:]):
        if counts is None or indices is None:
            found.append(torch.zeros_like(found[0]))
            continue
        places, beyond = places_of(counts, indices, grid.across)
        times = torch.zeros((*indices.shape[:-1], grid.across + 1), dtype=torch.int32, device=device)
        times.scatter_add_(-1, places, torch.ones_like(places, dtype=torch.int32))
        found.append(times[..., : grid.across])
        if beyond.any() or (counts > indices.shape[-1]).any():
            raise BindingError(f"block_mask lists blocks beyond its {grid.across} blocks of {grid.keys} keys")
    if (found[0] + found[1] > 1).any():
        raise BindingError("block_mask lists a block twice: its keys would count twice")
    return found[0] > 0, found[1] > 0


def _summaries(
    mask_mod: Callable[..., Any], counts: tuple[int, int], sizes: Sizes, grid: Grid, device: torch.device
) -> Iterator[tuple[slice, slice, slice, torch.Tensor, torch.Tensor]]:
    """Goes through batches, heads and rows of blocks, as many at a time as MOST_ELEMENTS allow. Yields which, and for
    each block whether the mask shows some of it, and whether all of it."""
    from torch.nn.attention.flex_attention import create_mask

    each = grid.rows * sizes.Skv
    for rows in _parts(grid.down, MOST_ELEMENTS // each):
        start, end = rows.start * grid.rows, min(sizes.Sq, rows.stop * grid.rows)
        each_head = (end - start) * sizes.Skv
        for heads in _parts(counts[1], MOST_ELEMENTS // each_head):
            for batches in _parts(counts[0], MOST_ELEMENTS // (each_head * (heads.stop - heads.start))):
                first = (batches.start, heads.start, start)

                def part(b: Any, h: Any, q_idx: Any, kv_idx: Any, first: tuple[int, int, int] = first) -> Any:
                    return mask_mod(b + first[0], h + first[1], q_idx + first[2], kv_idx)

                extents = (batches.stop - batches.start, heads.stop - heads.start, end - start, sizes.Skv)
                try:
                    mask = create_mask(part, *extents, device=device).bool()
                except Exception as error:
                    raise _Fails from error
                yield (batches, heads, rows, _blocks(mask, grid, False).any(5).any(3),
                       _blocks(mask, grid, True).all(5).all(3))


def _parts(count: int, together: int) -> Iterator[slice]:
    together = max(1, together)
    return (slice(first, min(count, first + together)) for first in range(0, count, together))


def _blocks(mask: torch.Tensor, grid: Grid, beyond: bool) -> torch.Tensor:
    """[batches, heads, down, rows, across, keys] of a mask, with `beyond` after its last row and key."""
    missing = (-mask.shape[2] % grid.rows, grid.across * grid.keys - mask.shape[3])
    padded = torch.nn.functional.pad(mask, (0, missing[1], 0, missing[0]), value=beyond)
    return padded.reshape(*padded.shape[:2], -1, grid.rows, grid.across, grid.keys)
