"""Block masks whose blocks say more than their mask_mod: a mask of both, of which the blocks are a tensor that kernels
read."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable
from typing import Any, Union

import torch

from attn.arguments import Sizes
from attn.torch.blocks import Adds, Grid, grid_of
from attn.torch.signature import has_memory
from attn.torch.statistics import is_capturing

HIDDEN, MASKED, WHOLE = range(3)  # elements of the tensor: by the mask_mod, or shown whatever it says
LISTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")


def joined(
    block_mask: Any, mask_mod: Callable[..., Any], query: torch.Tensor, sizes: Sizes, adds: Adds
) -> Callable[..., Any]:
    """The mask of a block mask, as FlexAttention computes it: of blocks that are listed, those of the full ones
    whole, and of others what the mask_mod shows. The lists are read on the device. What they say of blocks that are
    not there counts nothing, and a block counts once that they list twice."""
    blocks = _kept(block_mask, query, grid_of(block_mask, sizes))
    whole = WHOLE if adds is Adds.SHOWS and block_mask.full_kv_num_blocks is not None else None
    return mask_of_blocks(blocks, mask_mod, tuple(block_mask.BLOCK_SIZE), whole)


def mask_of_blocks(
    blocks: torch.Tensor, mask_mod: Callable[..., Any], size: tuple[int, int], whole: int | None
) -> Callable[..., Any]:
    """The mask of a tensor of blocks, `size` rows and keys each, and a mask_mod: uint8 [B or 1, Hq or 1, rows of
    blocks, columns]. `whole`: the element of blocks that the mask_mod does not change, if there are any."""
    batches, heads = blocks.shape[:2]
    rows, keys = size

    def listed(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        kind = blocks[b if batches > 1 else 0, h if heads > 1 else 0, q_idx // rows, kv_idx // keys]
        visible = mask_mod(b, h, q_idx, kv_idx)
        return (kind > 0) & (visible if whole is None else (kind == whole) | visible)

    return listed


def tensor_of(lists: dict[str, torch.Tensor | None], down: int, across: int, device: torch.device) -> torch.Tensor:
    """The tensor of blocks of the lists of a block mask, by their names, computed on the device."""
    batches = lists["kv_num_blocks"].shape[:-1]
    # What is not listed counts for a column that is not there.
    made = torch.zeros((*batches, down, across + 1), dtype=torch.uint8, device=device)
    for kind, element in (("kv", MASKED), ("full_kv", WHOLE)):
        counts, indices = lists[f"{kind}_num_blocks"], lists[f"{kind}_indices"]
        if counts is None:
            continue
        counts, indices = counts.to(device), indices.to(device).long()
        used = torch.arange(indices.shape[-1], device=device) < counts[..., None]
        places = torch.where(used & (indices >= 0) & (indices < across), indices, across)
        made = made.scatter(-1, places.expand(*batches, down, places.shape[-1]), element)
    return made[..., :across].contiguous()


class _Made:
    """The tensor of a block mask, and of what lists it was made."""

    def __init__(self, block_mask: Any, lists: _Lists, where: Any, blocks: torch.Tensor):
        key = id(block_mask)
        self.blocks = blocks
        self._of = weakref.ref(block_mask, lambda _: _made.pop(key, None))
        self._where = where
        self._lists = {name: None if x is None else weakref.ref(x) for name, x in lists.items()}
        self._places = {name: _place(x) for name, x in lists.items()}

    def is_of(self, block_mask: Any, lists: _Lists, where: Any) -> bool:
        """Whether the lists are the same, and were not written to since."""
        return (
            self._of() is block_mask
            and self._where == where
            and all((None if ref is None else ref()) is lists[name] for name, ref in self._lists.items())
            and all(place == _place(lists[name]) for name, place in self._places.items())
        )


_Lists = dict[str, Union[torch.Tensor, None]]
_lock = threading.Lock()
_made: dict[int, _Made] = {}


def _place(x: torch.Tensor | None) -> Any:
    """What changes when a list is written to; NaN, which equals nothing, where that cannot be known."""
    if x is None:
        return None
    return (x._version, x.data_ptr(), x.shape) if has_memory(x) and not x.is_inference() else math.nan


def _kept(block_mask: Any, query: torch.Tensor, grid: Grid) -> torch.Tensor:
    """The tensor of a block mask: that of an earlier call, if its lists are the same and were not written to. A CUDA
    graph makes it anew, of what the lists say when it is replayed."""
    lists = {name: getattr(block_mask, name, None) for name in LISTS}
    where, may_keep = (query.device, grid), has_memory(query) and not (query.is_cuda and is_capturing())
    with _lock:
        known = _made.get(id(block_mask)) if may_keep else None
        if known is not None and known.is_of(block_mask, lists, where):
            return known.blocks
    with torch.no_grad():
        blocks = tensor_of(lists, grid.down, grid.across, query.device)
    if may_keep:
        with _lock:
            _made[id(block_mask)] = _Made(block_mask, lists, where, blocks)
    return blocks
