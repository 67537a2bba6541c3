"""Calls of operators that have the lists of a BlockMask: by a tensor of its blocks, or, where they are known to follow
from the mask_mod, without them.

A program that is compiled cannot know what lists say. So the operator is given the lists themselves, as tensors named
"NAME.kv_num_blocks", where NAME is that of the tensor of blocks in the spec, and makes that tensor at each call, on the
device. Nothing of an earlier call is used again: addresses and versions say little of tensors within a program, whose
memory is used again and whose views count no writes. Only lists that were compared before the program was traced are
left out: these very tensors, not written to since.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from attn.arguments import INPUTS, extent, sizes_of
from attn.attention import Attention
from attn.torch import blocks
from attn.torch.blocks import LISTS, Place, lists_of
from attn.torch.cuda_graphs import is_preparing
from attn.torch.facts import attention_of, facts_of
from attn.torch.joined_blocks import tensor_of
from attn.torch.signature import has_memory
from attn.torch.statistics import is_capturing

MOST_KEPT = 64  # block masks that were compared, for each attention

def name_of(tensor: str, kind: str) -> str:
    """The name by which the operator is given a list. `tensor`: the name of the tensor of blocks in the spec."""
    return f"{tensor}.{kind}"


def without_lists(names: list[str], tensors: list[torch.Tensor]) -> tuple[list[str], list[torch.Tensor]]:
    """The tensors of a call that are no lists, for what does not depend on blocks."""
    kept = [place for place, name in enumerate(names) if "." not in name]
    return [names[place] for place in kept], [tensors[place] for place in kept]


class _Order(NamedTuple):
    """The names of a call in its order, and where its lists, q, k and v, and the tensors that are no lists are."""

    names: list[str]
    lists: list[tuple[int, Place]]
    inputs: list[int]
    kept: list[int]
    kept_names: list[str]


class _Proven:
    """Lists that follow from the mask_mod of the attention `alone`, for q, k and v of these shapes. Keeps no list
    alive."""

    def __init__(self, alone: Attention, shapes: Sequence[tuple[int, ...]], lists: Mapping[str, Place]):
        self.alone = facts_of(alone).name
        self._shapes = shapes
        self._lists = lists
        self._order: _Order | None = None  # of the last call

    @property
    def lives(self) -> bool:
        """Whether a call may still have these lists."""
        return all(place.tensor() is not None for place in self._lists.values())

    def without(self, names: list[str], tensors: list[torch.Tensor]) -> tuple[list[str], list[torch.Tensor]] | None:
        """The names and tensors of a call without its lists; None unless these are the very ones, as they were."""
        order = self._order
        if order is None or order.names != names:
            order = self._order = self._order_of(names)
        if order is None or [tensors[at].shape for at in order.inputs] != self._shapes:
            return None
        for at, place in order.lists:
            if not place.is_of(tensors[at]):
                return None
        return list(order.kept_names), [tensors[at] for at in order.kept]

    def _order_of(self, names: list[str]) -> _Order | None:
        """None if a call has other lists."""
        kinds = {name.partition(".")[2]: at for at, name in enumerate(names) if "." in name}
        if kinds.keys() != self._lists.keys():
            return None
        kept = [at for at, name in enumerate(names) if "." not in name]
        lists = [(kinds[kind], place) for kind, place in self._lists.items()]
        return _Order(list(names), lists, [names.index(each) for each in INPUTS], kept, [names[at] for at in kept])


_lock = threading.Lock()
_proven: dict[str, list[_Proven]] = {}  # by the names of attentions


def note(joined: Attention, alone: Attention, block_mask: Any, shapes: Sequence[tuple[int, ...]]) -> None:
    """Notes that calls of `joined`, of q, k and v of these shapes, are those of `alone` if they have the lists of this
    BlockMask: if it follows from its mask_mod, for which it is compared here. Raises BindingError for wrong lists."""
    given = {name: x for name, x in lists_of(block_mask).items() if x is not None}
    sizes = sizes_of(*(_Shaped(shape) for shape in shapes))
    where = given["kv_num_blocks"]
    if not all(map(has_memory, given.values())) or (where.is_cuda and is_capturing()):
        return
    lists = {name: place for name, x in given.items() if (place := Place.of(x)) is not None}
    if len(lists) < len(given):
        return
    if blocks.added(block_mask, where, sizes, alone, _reads_nothing) is blocks.Adds.NOTHING:
        with _lock:
            known = [one for one in _proven.get(facts_of(joined).name, ()) if one.lives]
            _proven[facts_of(joined).name] = [*known, _Proven(alone, shapes, lists)][-MOST_KEPT:]


def _reads_nothing(name: str) -> Mapping[str, Any]:
    raise AssertionError(f"a mask that reads {name}")


class _Shaped(NamedTuple):
    shape: tuple[int, ...]


def resolved(
    attention: str, names: list[str], tensors: list[torch.Tensor]
) -> tuple[str, list[str], list[torch.Tensor]]:
    """The attention, names and tensors of a call that may have lists, without them. A CUDA graph, which may be replayed
    after lists were written to, reads them."""
    for one in _proven.get(attention, ()):
        found = one.without(names, tensors)
        if found is not None and not _is_kept(tensors[0]):
            return one.alone, *found
    listed = next((name for name in names if "." in name), None)
    if listed is None:
        return attention, names, tensors
    name = listed.partition(".")[0]
    lists = {each.partition(".")[2]: x for each, x in zip(names, tensors) if "." in each}
    names, tensors = without_lists(names, tensors)
    q, k, v = (tensors[names.index(each)] for each in INPUTS)
    sizes = sizes_of(q, k, v)._asdict()
    down, across = (int(extent(text, sizes)) for text in attention_of(attention).described.inputs[name].dims[2:])
    with torch.no_grad():
        blocks_of_call = tensor_of({each: lists.get(each) for each in LISTS}, down, across, q.device)
    return attention, [*names, name], [*tensors, blocks_of_call]


def _is_kept(tensor: torch.Tensor) -> bool:
    """Whether a call of a tensor becomes part of a CUDA graph."""
    return tensor.is_cuda and (is_capturing() or is_preparing(tensor.device))
