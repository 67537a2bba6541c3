"""Block masks whose blocks say more than their mask_mod: a mask of both, of which the blocks are a tensor that kernels
read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from attn.arguments import Sizes
from attn.torch.blocks import Adds, grid_of, lists_of, places_of

HIDDEN, MASKED, WHOLE = range(3)  # elements of the tensor: by the mask_mod, or shown whatever it says


def joined(
    block_mask: Any, mask_mod: Callable[..., Any], query: torch.Tensor, sizes: Sizes, adds: Adds
) -> Callable[..., Any]:
    """The mask of a block mask, as FlexAttention computes it: of blocks that are listed, those of the full ones
    whole, and of others what the mask_mod shows. The lists are read on the device, at each call and at each replay of a
    CUDA graph. What they say of blocks that are not there counts nothing, and a block counts once that they list
    twice."""
    grid = grid_of(block_mask, sizes)
    with torch.no_grad():
        blocks = tensor_of(lists_of(block_mask), grid.down, grid.across, query.device)
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
    first = lists["kv_num_blocks"]
    assert first is not None
    batches = first.shape[:-1]
    # What is not listed counts for a column that is not there.
    made = torch.zeros((*batches, down, across + 1), dtype=torch.uint8, device=device)
    for kind, element in (("kv", MASKED), ("full_kv", WHOLE)):
        counts, indices = lists[f"{kind}_num_blocks"], lists[f"{kind}_indices"]
        if counts is None or indices is None:
            continue
        places, _ = places_of(counts.to(device), indices.to(device), across)
        made = made.scatter(-1, places.expand(*batches, down, places.shape[-1]), element)
    return made[..., :across].contiguous()
