"""The operators `attn::forward` and `attn::backward`.

Eager calls go directly to the kernels; the operators are what `torch.compile`, `torch.export` and
fake tensors see. An operator names its attention by a text that says how to compile it again, so that an
exported program means the same in another process.
"""

from __future__ import annotations

from typing import Any

import torch

from attn.arguments import INPUTS
from attn.outputs import is_amax
from attn.torch import empty, listed_calls
from attn.torch.autograd import register_gradients
from attn.torch.calls import Call, formed
from attn.torch.execute import run_backward, run_forward
from attn.torch.facts import attention_of, facts_of
from attn.torch.plans import pair_of
from attn.torch.signature import readable_strides, with_strides
from attn.torch.statistics import gradient_of_lse
from attn.torch.ways import ShortWay

_library = torch.library.Library("attn", "DEF")
_library.define(
    "forward(str attention, str[] names, Tensor[] tensors, float[] params, bool training) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_library.define(
    "backward(str attention, str[] names, Tensor[] tensors, float[] params, Tensor[] outputs, Tensor d_o,"
    " str[] reached, Tensor[] d_reached) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def apply_operator(each: Call) -> Any:
    """The outputs that a caller sees, through `attn::forward`, for programs that are traced."""
    facts = facts_of(each.attention)
    tensors = list(each.tensors.values())
    training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    outputs = torch.ops.attn.forward(
        facts.name, list(each.tensors), tensors, list(each.params.values()), training
    )
    shown = [x.detach() if is_amax(name) else x for name, x in zip(facts.outputs, outputs)]
    return shown[0] if len(shown) == 1 else tuple(shown)


def _call_of(attention: str, names: list[str], tensors: list[torch.Tensor], params: list[float]) -> Call:
    names, tensors = listed_calls.without_lists(names, tensors)
    found = attention_of(attention)
    return formed(Call(found, dict(zip(names, tensors)), dict(zip(facts_of(found).params, params))))


def _way_key(names: list[str], training: bool) -> tuple[Any, ...]:
    return tuple(names), training, torch.are_deterministic_algorithms_enabled()


@torch.library.impl(_library, "forward", "CompositeExplicitAutograd")
def _forward(attention: str, names: list[str], tensors: list[torch.Tensor], params: list[float],
             training: bool) -> list[torch.Tensor]:
    attention, names, tensors = listed_calls.resolved(attention, names, tensors)
    facts = facts_of(attention_of(attention))
    key = _way_key(names, training)
    way = facts.ways.get(key)
    outputs = None if way is None else way.forward(tensors, params)
    if outputs is not None:
        return list(outputs)
    each = _call_of(attention, names, tensors, params)
    outputs = run_forward(each, training, lends=True)
    if tensors[0].is_cuda and not empty.is_empty(each):
        facts.ways[key] = ShortWay(each, training, pair_of(each, training), lends=True)
    return list(outputs)


@torch.library.impl(_library, "backward", "CompositeExplicitAutograd")
def _backward(
    attention: str, names: list[str], tensors: list[torch.Tensor], params: list[float], outputs: list[torch.Tensor],
    d_o: torch.Tensor, reached: list[str], d_reached: list[torch.Tensor],
) -> list[torch.Tensor]:
    """`reached`: the outputs other than o that a backward came to, and their gradients: of others than lse they must
    be zero."""
    attention, names, tensors = listed_calls.resolved(attention, names, tensors)
    facts = facts_of(attention_of(attention))
    d_lse = gradient_of_lse(facts, reached, d_reached)
    way = facts.ways.get(_way_key(names, True))
    found = None if way is None else way.backward_at_once((*tensors, *outputs), d_o, d_lse, params)
    if found is None:  # the recent call may have had other sizes
        found = run_backward(_call_of(attention, names, tensors, params), outputs, d_o, d_lse, lends=True)
    if facts.addressing is not None:
        return list(found)
    # As the fake says: a copy of a misaligned tensor has other strides than the tensor.
    given = dict(zip(names, tensors))
    return [with_strides(x, readable_strides(given[name])) if name in INPUTS else x
            for name, x in zip(facts.of_backward, found)]


def _fake_forward(attention: str, names: list[str], tensors: list[torch.Tensor], params: list[float],
                  training: bool) -> list[torch.Tensor]:
    each = _call_of(attention, names, tensors, params)
    facts = facts_of(each.attention)
    return empty.outputs(each, facts, facts.all_outputs if training else facts.outputs)


def _fake_backward(attention: str, names: list[str], tensors: list[torch.Tensor], params: list[float],
                   *_: Any) -> list[torch.Tensor]:
    each = _call_of(attention, names, tensors, params)
    return empty.gradients(each, facts_of(each.attention))


def _names_of(attention: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    facts = facts_of(attention_of(attention))
    return facts.all_outputs, facts.of_backward


torch.library.register_fake("attn::forward", _fake_forward, lib=_library)
torch.library.register_fake("attn::backward", _fake_backward, lib=_library)
register_gradients(_library, "", (_forward, _backward), _names_of)
