"""Calls of operators that have the lists of a BlockMask: by a tensor of its blocks, or, where they are known to follow
from the mask_mod, without them.

A program that is compiled cannot know what lists say. So the operator is given the lists themselves, as tensors named
"NAME.kv_num_blocks", where NAME is that of the tensor of blocks in the spec, and looks when it is called: at places and
versions, and once at the elements of lists that are new.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from attn.arguments import extent, sizes_of
from attn.attention import Attention
from attn.torch import blocks
from attn.torch.cuda_graphs import is_preparing
from attn.torch.facts import attention_of, facts_of
from attn.torch.joined_blocks import LISTS, tensor_of
from attn.torch.signature import has_memory
from attn.torch.statistics import is_capturing

MOST_KEPT = 64  # lists whose tensor of blocks is kept, and that were compared, for each attention

Lists = dict[str, torch.Tensor]  # those of LISTS that there are


def name_of(tensor: str, kind: str) -> str:
    """The name by which the operator is given a list. `tensor`: the name of the tensor of blocks in the spec."""
    return f"{tensor}.{kind}"


def without_lists(names: list[str], tensors: list[torch.Tensor]) -> tuple[list[str], list[torch.Tensor]]:
    """The tensors of a call that are no lists, for what does not depend on blocks."""
    kept = [place for place, name in enumerate(names) if "." not in name]
    return [names[place] for place in kept], [tensors[place] for place in kept]


class _Seen:
    """Lists that calls had. They are kept, so that no others are in their place. `alone`: the attention of the mask_mod
    alone, if they say the same; `blocks`: their tensor, once it is needed."""

    def __init__(self, lists: Lists, alone: Attention | None):
        self.lists, self.alone = lists, alone
        self.blocks: torch.Tensor | None = None


class _Known(NamedTuple):
    """What is known of the lists of one attention. `alone`: the attention of the mask_mod alone, and the shapes and
    lists for which it is the same."""

    seen: OrderedDict[Any, _Seen]
    alone: list[tuple[Attention, Sequence[tuple[int, ...]], Lists]]


_lock = threading.Lock()
_known: dict[str, _Known] = {}


def _of(attention: str) -> _Known:
    return _known.setdefault(attention, _Known(OrderedDict(), []))


def note(joined: Attention, alone: Attention, block_mask: Any, shapes: Sequence[tuple[int, ...]]) -> None:
    """Notes that calls of `joined`, of q, k and v of these shapes, may be those of `alone` if they have the lists of
    this BlockMask: if it follows from its mask_mod, for which it is compared here. Raises BindingError for wrong lists."""
    lists = {name: x for name in LISTS if (x := getattr(block_mask, name, None)) is not None}
    sizes = sizes_of(*(_Shaped(shape) for shape in shapes))
    where = lists["kv_num_blocks"]
    if where.is_cuda and is_capturing():
        return
    if blocks.added(block_mask, where, sizes, alone, {}) is blocks.Adds.NOTHING:
        with _lock:
            known = _of(facts_of(joined).name)
            known.alone.append((alone, shapes, {name: x.clone() for name, x in lists.items()}))
            del known.alone[:-MOST_KEPT]
            known.seen.clear()


class _Shaped(NamedTuple):
    shape: tuple[int, ...]


def resolved(
    attention: str, names: list[str], tensors: list[torch.Tensor]
) -> tuple[str, list[str], list[torch.Tensor]]:
    """The attention, names and tensors of a call that may have lists, without them."""
    listed = next((name for name in names if "." in name), None)
    if listed is None:
        return attention, names, tensors
    name = listed.partition(".")[0]
    lists = {each.partition(".")[2]: x for each, x in zip(names, tensors) if "." in each}
    names, tensors = without_lists(names, tensors)
    q, k, v = (tensors[names.index(each)] for each in "qkv")
    shapes = [tuple(x.shape) for x in (q, k, v)]
    capturing = q.is_cuda and is_capturing()
    keeps = not capturing and not is_preparing(q.device)
    place = (shapes[0], shapes[1][2], *(_place(x) for x in lists.values()))
    with _lock:
        known = _of(attention)
        seen = known.seen.get(place)
        if seen is None and not capturing:
            seen = _Seen(lists, next((one[0] for one in known.alone if _is_same(one, shapes, lists)), None))
        if keeps:
            known.seen[place] = seen
            while len(known.seen) > MOST_KEPT:
                known.seen.popitem(last=False)
    if seen is not None and seen.alone is not None:
        return facts_of(seen.alone).name, names, tensors
    found = seen.blocks if keeps else None
    if found is None:
        dims = attention_of(attention).described.inputs[name].dims
        sizes = sizes_of(q, k, v)._asdict()
        down, across = (int(extent(text, sizes)) for text in dims[2:])
        with torch.no_grad():
            found = tensor_of({each: lists.get(each) for each in LISTS}, down, across, q.device)
        if keeps:
            seen.blocks = found
    return attention, [*names, name], [*tensors, found]


def _place(x: torch.Tensor) -> Any:
    """What tells lists apart that are kept; NaN, which equals nothing, where writes are not counted."""
    if not has_memory(x) or x.is_inference():
        return math.nan
    return x.data_ptr(), x._version, tuple(x.shape), x.stride()


def _is_same(alone: Any, shapes: Sequence[tuple[int, ...]], lists: Lists) -> bool:
    _, of_shapes, of_lists = alone
    return of_shapes == shapes and lists.keys() == of_lists.keys() and all(
        torch.equal(x, of_lists[name]) for name, x in lists.items())
