"""The operators `attn::forward` and `attn::backward`, and what chooses between them and the direct way.

Eager calls go directly to the kernels; the operators are what `torch.compile`, `torch.export` and
fake tensors see. An operator names its attention by a text that says how to compile it again, so that an
exported program means the same in another process.
"""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

import torch

from attn.outputs import is_amax
from attn.torch import empty
from attn.torch.function import (
    Call,
    Facts,
    differentiable_once,
    facts_of,
    formed,
    pair_of,
    refuse_second_derivative,
    run_backward,
    run_forward,
)
from attn.torch.recent import Way
from attn.torch.statistics import gradient_of_o, of_outputs, refuse

if TYPE_CHECKING:
    from attn.attention import Attention

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

_attentions: dict[str, Attention] = {}
_lock = threading.Lock()


def prepare(attention: Attention) -> None:
    """Finds what calls need to know, once; programs that are traced only read it."""
    name = json.dumps(
        {
            "spec": attention.source.text,
            "filename": attention.source.filename,
            "bindings": dict(attention.bindings),
            "engine": attention.engine,
        },
        sort_keys=True,
    )
    with _lock:
        attention._torch_facts = Facts(attention, name)
        _attentions.setdefault(name, attention)


def attention_of(name: str) -> Attention:
    """Raises what `attn.compile` does, if this process has not seen the attention."""
    found = _attentions.get(name)
    if found is None:
        from attn.attention import compile as compile_attention
        from attn.specs import Spec

        said = json.loads(name)
        filename = said["filename"]
        if filename is not None and not os.path.isdir(os.path.dirname(filename) or "."):
            filename = None  # the program was exported on another machine
        found = compile_attention(Spec(said["spec"], filename), engine=said["engine"], **said["bindings"])
        with _lock:
            found = _attentions.setdefault(name, found)
    return found


def apply(each: Call) -> Any:
    """The outputs that a caller sees."""
    facts = facts_of(each.attention)
    tensors = tuple(each.tensors.values())
    training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if training:
        outputs = _Attend.apply(each, *tensors)[: len(facts.outputs)]
    else:
        outputs = run_forward(each, False)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def apply_operator(each: Call) -> Any:
    """The same through `attn::forward`, for programs that are traced."""
    facts = facts_of(each.attention)
    tensors = list(each.tensors.values())
    training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    outputs = torch.ops.attn.forward(
        facts.name, list(each.tensors), tensors, list(each.params.values()), training
    )
    shown = [x.detach() if is_amax(name) else x for name, x in zip(facts.outputs, outputs)]
    return shown[0] if len(shown) == 1 else tuple(shown)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, each: Call, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = run_forward(each, True)
        ctx.attention, ctx.params, ctx.form = each.attention, each.params, each.form
        ctx.names = tuple(each.tensors)
        ctx.save_for_backward(*tensors, *outputs)
        names = facts_of(each.attention).all_outputs
        ctx.mark_non_differentiable(*(x for name, x in zip(names, outputs) if is_amax(name)))
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *d_outputs: torch.Tensor | None) -> tuple[Any, ...]:
        count = len(ctx.names)
        d_o = gradient_of_o(facts_of(ctx.attention).all_outputs, d_outputs)
        if d_o is None:
            return (None,) * (count + 1)
        saved = ctx.saved_tensors
        each = Call(ctx.attention, dict(zip(ctx.names, saved[:count])), ctx.params, ctx.form)
        with torch.no_grad():
            found = run_backward(each, saved[count:], d_o)
        return (None, *differentiable_once([found.get(name) for name in ctx.names], (*saved, d_o)))


def _call_of(attention: str, names: list[str], tensors: list[torch.Tensor], params: list[float]) -> Call:
    found = attention_of(attention)
    return formed(Call(found, dict(zip(names, tensors)), dict(zip(facts_of(found).params, params))))


def _way_key(names: list[str], training: bool) -> tuple[Any, ...]:
    return tuple(names), training, torch.are_deterministic_algorithms_enabled()


@torch.library.impl(_library, "forward", "CompositeExplicitAutograd")
def _forward(attention, names, tensors, params, training):
    facts = facts_of(attention_of(attention))
    key = _way_key(names, training)
    way = facts.ways.get(key)
    outputs = None if way is None else way.forward(tensors, params)
    if outputs is not None:
        return list(outputs)
    each = _call_of(attention, names, tensors, params)
    outputs = run_forward(each, training)
    if tensors[0].is_cuda and not empty.is_empty(each):
        facts.ways[key] = Way(each, pair_of(each, training), training)
    return list(outputs)


@torch.library.impl(_library, "backward", "CompositeExplicitAutograd")
def _backward(attention, names, tensors, params, outputs, d_o, reached, d_reached):
    """`reached`: the outputs other than o that a backward came to, and their gradients, which must be zero."""
    refuse(reached, d_reached)
    facts = facts_of(attention_of(attention))
    way = facts.ways.get(_way_key(names, True))
    found = None if way is None else way.backward(tensors, outputs, d_o, params)
    if found is not None:
        return list(found)
    gradients = run_backward(_call_of(attention, names, tensors, params), outputs, d_o)
    return [gradients[name] for name in facts.of_backward]


@torch.library.register_fake("attn::forward", lib=_library)
def _fake_forward(attention, names, tensors, params, training):
    each = _call_of(attention, names, tensors, params)
    facts = facts_of(each.attention)
    return empty.outputs(each, facts, facts.all_outputs if training else facts.outputs)


@torch.library.register_fake("attn::backward", lib=_library)
def _fake_backward(attention, names, tensors, params, outputs, d_o, reached, d_reached):
    each = _call_of(attention, names, tensors, params)
    return empty.gradients(each, facts_of(each.attention))


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.attention, ctx.names, tensors, ctx.params, training = inputs
    ctx.count = len(tensors)
    ctx.save_for_backward(*tensors, *output)
    ctx.training = training
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, d_outputs: Any) -> Any:
    saved = ctx.saved_tensors
    tensors, outputs = saved[: ctx.count], saved[ctx.count :]
    facts = facts_of(attention_of(ctx.attention))
    d_o, reached, d_reached = of_outputs(facts.all_outputs, d_outputs)
    if d_o is None and not reached:
        return None, None, [None] * len(tensors), _no_gradient(ctx.params), None
    if d_o is None:
        d_o = torch.zeros_like(outputs[facts.all_outputs.index("o")])
    found = torch.ops.attn.backward(
        ctx.attention, ctx.names, list(tensors), ctx.params, list(outputs), d_o, reached, d_reached
    )
    gradients = dict(zip(facts.of_backward, found))
    d_tensors = [gradients.get(name) for name in ctx.names]
    return None, None, d_tensors, _no_gradient(ctx.params), None


def _no_gradient(params: list[float]) -> list[None] | None:
    return None if params else []  # PyTorch keeps the structure of an empty list


torch.library.register_autograd("attn::backward", lambda *_: refuse_second_derivative(), lib=_library)
torch.library.register_autograd("attn::forward", _differentiate, setup_context=_setup, lib=_library)
