"""The operators `attn::distributed_forward` and `attn::distributed_backward`: what `torch.compile` sees of a
`Distributed`. They are given its name, a text that is valid in this process only."""

from __future__ import annotations

import itertools
import weakref
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from attn.errors import ArgumentError
from attn.outputs import is_amax
from attn.torch.autograd import register_gradients
from attn.torch.facts import facts_of
from attn.torch.ranked import cotangents

if TYPE_CHECKING:
    from attn.torch.distributed import Distributed

_library = torch.library.Library("attn", "FRAGMENT")
_library.define(
    "distributed_forward(str sharded, str[] names, Tensor[] tensors, float[] params) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_library.define(
    "distributed_backward(str sharded, str[] names, Tensor[] tensors, float[] params, Tensor[] outputs,"
    " Tensor d_o, str[] reached, Tensor[] d_reached) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)

_known: weakref.WeakValueDictionary[str, Distributed] = weakref.WeakValueDictionary()
_counter = itertools.count()


def register(sharded: Distributed) -> str:
    """The text by which operators find it."""
    key = f"{sharded.attention.name} {next(_counter)}"
    _known[key] = sharded
    return key


def apply_operator(sharded: Distributed, names: list[str], tensors: list[torch.Tensor],
                   params: list[float]) -> tuple[torch.Tensor, ...]:
    """The outputs that a caller sees, of a program that is traced."""
    found = torch.ops.attn.distributed_forward(sharded.key, names, tensors, params)
    outputs = facts_of(sharded.attention).outputs
    return tuple(x.detach() if is_amax(name) else x for name, x in zip(outputs, found))


def _find(key: str) -> Distributed:
    if key not in _known:
        raise ArgumentError(
            f"this process has no distributed attention `{key}`",
            ["programs with attentions of several GPUs cannot be exported: distribute them again"],
        )
    return _known[key]


def _params(sharded: Distributed, values: list[float]) -> dict[str, float]:
    return dict(zip(facts_of(sharded.attention).params, values))


def _outputs_of(sharded: Distributed) -> tuple[str, ...]:
    facts = facts_of(sharded.attention)
    return facts.all_outputs if sharded.training else facts.outputs


@torch.library.impl(_library, "distributed_forward", "CompositeExplicitAutograd")
def _forward(key: str, names: list[str], tensors: list[torch.Tensor], params: list[float]) -> list[torch.Tensor]:
    sharded = _find(key)
    with sharded.told():
        how = sharded._open()
    found = how.forward(dict(zip(names, tensors)), _params(sharded, params))
    return [found[name] for name in _outputs_of(sharded)]


@torch.library.impl(_library, "distributed_backward", "CompositeExplicitAutograd")
def _backward(
    key: str, names: list[str], tensors: list[torch.Tensor], params: list[float], outputs: list[torch.Tensor],
    d_o: torch.Tensor, reached: list[str], d_reached: list[torch.Tensor],
) -> list[torch.Tensor]:
    sharded = _find(key)
    with sharded.told():
        how = sharded._open()
        given = {**dict(zip(names, tensors)), **dict(zip(_outputs_of(sharded), outputs))}
        given |= cotangents(facts_of(sharded.attention), given, d_o, reached, d_reached)
    found = how.backward(given, _params(sharded, params))
    return [found[name] for name in facts_of(sharded.attention).differentiated]


def _fake_forward(key: str, names: list[str], tensors: list[torch.Tensor], params: list[float]) -> list[torch.Tensor]:
    sharded = _find(key)
    given, facts = dict(zip(names, tensors)), facts_of(sharded.attention)
    q, v = given["q"], given["v"]
    shape = (*q.shape[:-1], v.shape[-1])
    made = {"o": sharded._open().empty_like("o", shape, q, q.dtype)}
    stats = facts.dtype_of("lse", q.dtype)
    return [made[name] if name in made else q.new_empty(shape[:-1], dtype=stats)
            for name in _outputs_of(sharded)]


def _fake_backward(key: str, names: list[str], tensors: list[torch.Tensor], params: list[float],
                   *_: Any) -> list[torch.Tensor]:
    sharded = _find(key)
    given, facts = dict(zip(names, tensors)), facts_of(sharded.attention)
    return [sharded._open().empty_like(f"d{name}", given[name].shape, given[name],
                                       facts.gradient_dtype(name, given[name]))
            for name in facts.differentiated]


def _names_of(key: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    sharded = _find(key)
    return _outputs_of(sharded), facts_of(sharded.attention).differentiated


def _told(key: str) -> AbstractContextManager[None]:
    return _find(key).told()


torch.library.register_fake("attn::distributed_forward", _fake_forward, lib=_library)
torch.library.register_fake("attn::distributed_backward", _fake_backward, lib=_library)
register_gradients(_library, "distributed_", (_forward, _backward), _names_of, _told)
