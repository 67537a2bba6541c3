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
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from attn.arguments import extent, sizes_of
from attn.attention import Attention
from attn.torch import blocks
from attn.torch.blocks import LISTS, lists_of, place_of
from attn.torch.cuda_graphs import is_preparing
from attn.torch.facts import attention_of, facts_of
from attn.torch.joined_blocks import tensor_of
from attn.torch.signature import has_memory
from attn.torch.statistics import is_capturing

MOST_KEPT = 64  # block masks that were compared, for each attention

Lists = dict[str, torch.Tensor]  # those of LISTS that there are


def name_of(tensor: str, kind: str) -> str:
    """The name by which the operator is given a list. `tensor`: the name of the tensor of blocks in the spec."""
    return f"{tensor}.{kind}"


def without_lists(names: list[str], tensors: list[torch.Tensor]) -> tuple[list[str], list[torch.Tensor]]:
    """The tensors of a call that are no lists, for what does not depend on blocks."""
    kept = [place for place, name in enumerate(names) if "." not in name]
    return [names[place] for place in kept], [tensors[place] for place in kept]


class _Proven:
    """Lists that follow from the mask_mod of the attention `alone`, for q, k and v of these shapes. Keeps no list
    alive."""

    def __init__(self, alone: Attention, shapes: Sequence[tuple[int, ...]], lists: Lists):
        self.alone = alone
        self._shapes = shapes
        self._lists = {name: weakref.ref(x) for name, x in lists.items()}
        self._states = {name: place_of(x) for name, x in lists.items()}

    @property
    def lives(self) -> bool:
        """Whether a call may still have these lists."""
        return all(ref() is not None for ref in self._lists.values())

    def is_of(self, shapes: Sequence[tuple[int, ...]], lists: Lists) -> bool:
        """Whether these are the very lists, as they were."""
        return self._shapes == shapes and self._lists.keys() == lists.keys() and all(
            self._lists[name]() is x and _counts_writes(x) and self._states[name] == place_of(x)
            for name, x in lists.items())


def _counts_writes(x: torch.Tensor) -> bool:
    return has_memory(x) and not x.is_inference()


_lock = threading.Lock()
_proven: dict[str, list[_Proven]] = {}  # by the names of attentions


def note(joined: Attention, alone: Attention, block_mask: Any, shapes: Sequence[tuple[int, ...]]) -> None:
    """Notes that calls of `joined`, of q, k and v of these shapes, are those of `alone` if they have the lists of this
    BlockMask: if it follows from its mask_mod, for which it is compared here. Raises BindingError for wrong lists."""
    lists = {name: x for name, x in lists_of(block_mask).items() if x is not None}
    sizes = sizes_of(*(_Shaped(shape) for shape in shapes))
    where = lists["kv_num_blocks"]
    if not all(map(_counts_writes, lists.values())) or (where.is_cuda and is_capturing()):
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
    listed = next((name for name in names if "." in name), None)
    if listed is None:
        return attention, names, tensors
    name = listed.partition(".")[0]
    lists = {each.partition(".")[2]: x for each, x in zip(names, tensors) if "." in each}
    names, tensors = without_lists(names, tensors)
    q, k, v = (tensors[names.index(each)] for each in "qkv")
    if not (q.is_cuda and (is_capturing() or is_preparing(q.device))):
        shapes = [tuple(x.shape) for x in (q, k, v)]
        alone = next((one.alone for one in _proven.get(attention, ()) if one.is_of(shapes, lists)), None)
        if alone is not None:
            return facts_of(alone).name, names, tensors
    sizes = sizes_of(q, k, v)._asdict()
    down, across = (int(extent(text, sizes)) for text in attention_of(attention).described.inputs[name].dims[2:])
    with torch.no_grad():
        found = tensor_of({each: lists.get(each) for each in LISTS}, down, across, q.device)
    return attention, [*names, name], [*tensors, found]
