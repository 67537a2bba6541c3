"""8-bit attention of tensors with more bits: they are rounded by their scales, and have gradients.

PyTorch's autograd converts each gradient to the type of its tensor, so that of an e4m3 tensor cannot be e5m2.
Here tensors keep their type, and q, k, v, o, do and the gradients have 8 bits only inside of an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from attn.arguments import INPUTS
from attn.errors import BindingError, UnsupportedError
from attn.outputs import is_amax
from attn.torch.autograd import differentiable_once
from attn.torch.calls import Call
from attn.torch.facts import Facts, facts_of
from attn.torch.signature import EIGHT_BITS, TORCH_DTYPES
from attn.torch.statistics import of_outputs

WIDE = (torch.bfloat16, torch.float16, torch.float32)


def quantize(tensor: torch.Tensor, descale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor divided by its scale and rounded to e4m3 or e5m2; what is too large becomes the largest
    value, where PyTorch's own conversion makes it NaN or infinity. The strides are kept."""
    most = torch.finfo(dtype).max
    return (_converted(tensor, torch.float32) / descale).clamp(-most, most).to(dtype)


def _converted(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Converts, unless that does nothing: it would return the same tensor, and Dynamo then takes one of the two for a
    result that nobody uses, which loses gradients."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def is_wide(each: Call) -> bool:
    """Whether the tensors of a call of 8-bit attention have more bits."""
    return each.tensors["q"].dtype not in EIGHT_BITS


def check(each: Call) -> None:
    """Raises BindingError or UnsupportedError for types that do not fit together, and for tensors that ask for more
    than autograd can do."""
    facts, tensors = facts_of(each.attention), each.tensors
    if is_wide(each):
        _check_wide(each)
        return
    for name in facts.amax_of_backward:
        if name in tensors:
            raise BindingError(f"{name} is written only for q, k and v of 16 or 32 bits")
    if not _trains(tensors):
        return
    _check_trained(facts)
    types = facts.quantized
    if types is not None and not facts.keeps_types:
        raise UnsupportedError(
            f"autograd converts gradients to the types of their tensors: `{facts.title}` has do in {types.do}"
            f" beside o in {types.o}, and gradients in {types.gradients} beside q in {facts.dtype}",
            ["give q, k and v of 16 or 32 bits: they are rounded by descale_q, descale_k and descale_v"],
        )


def call(each: Call) -> Any:
    """What `attn.torch.call` returns, for q, k and v of bf16, f16 or f32 that are the real values: q is
    `descale_q` times what has 8 bits. So is o, which has the type of q: if it has 8 bits inside, it is
    divided by `scale_o`. Its gradient is rounded by `descale_do`, and those of q, k and v, of their own
    type, are divided by `scale_dq`, `scale_dk` and `scale_dv`. Scales have no gradients.

    `amax_dp`, `amax_dq`, `amax_dk` and `amax_dv`, if they are given, are f32 tensors of one element into
    which the backward writes the largest magnitudes."""
    facts, tensors = facts_of(each.attention), each.tensors
    training = _trains(tensors)
    buffers = {name: tensors[name] for name in facts.amax_of_backward if name in tensors}
    names = [name for name in tensors if name not in buffers]
    how = _How(
        facts.name,
        tuple(names),
        tuple(each.params.values()),
        training,
        TORCH_DTYPES[facts.dtype],
        facts.dtype_of("do", TORCH_DTYPES[facts.dtype]),
        facts.of_backward,
        facts.all_outputs if training else facts.outputs,
        tuple(buffers),
    )
    attend: Any = _Attend
    outputs = attend.apply(how, *(tensors[name] for name in names), *buffers.values())
    shown = outputs[: len(facts.outputs)]
    return shown[0] if len(shown) == 1 else tuple(shown)


def _check_wide(each: Call) -> None:
    dtypes = {name: each.tensors[name].dtype for name in INPUTS}
    if len(set(dtypes.values())) > 1 or dtypes["q"] not in WIDE:
        listed = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
        raise BindingError(
            f"q, k and v must all be of float8, bfloat16, float16 or float32, not {listed}"
        )
    if _trains(each.tensors):
        _check_trained(facts_of(each.attention))


def _trains(tensors: dict[str, torch.Tensor]) -> bool:
    return torch.is_grad_enabled() and any(tensors[name].requires_grad for name in INPUTS)


def _check_trained(facts: Facts) -> None:
    if not facts.said.facts["grad"]:
        raise UnsupportedError(
            f"`{facts.title}` has gradients only with a `grad` clause, which declares their scales",
            ["add `grad q, k, v;`, or call it under torch.no_grad()"],
        )


def _scaled_back(tensor: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """The value of what was stored times the scale."""
    return _converted(tensor if scale is None else tensor.float() / scale, dtype)


class _How(NamedTuple):
    """What is the same in each call like this one."""

    attention: str
    names: tuple[str, ...]  # of the tensors, before the buffers
    params: tuple[float, ...]
    training: bool
    dtype: torch.dtype
    dtype_of_do: torch.dtype
    of_backward: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: tuple[str, ...]


class _Attend(torch.autograd.Function):
    """Through the operators, so that torch.compile traces it."""

    @staticmethod
    def forward(ctx: Any, how: _How, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip(how.names, tensors))
        ctx.how, ctx.dtype = how, given["q"].dtype
        for name in INPUTS:
            given[name] = quantize(given[name], given[f"descale_{name}"], how.dtype)
        inputs = list(given.values())
        outputs = torch.ops.attn.forward(
            how.attention, list(how.names), inputs, list(how.params), how.training
        )
        if how.training:
            ctx.save_for_backward(*inputs, *outputs)
            # Not saved: calls may share them, and each backward writes them.
            ctx.buffers = tensors[len(inputs) :]
        shown = [
            _scaled_back(x, given.get("scale_o"), ctx.dtype) if name == "o" else x
            for name, x in zip(how.outputs, outputs)
        ]
        ctx.mark_non_differentiable(*[x for name, x in zip(how.outputs, shown) if is_amax(name)])
        ctx.set_materialize_grads(False)
        return tuple(shown)

    @staticmethod
    def backward(ctx: Any, *d_outputs: torch.Tensor | None) -> tuple[Any, ...]:
        how, saved = ctx.how, ctx.saved_tensors
        count = len(how.names)
        inputs, outputs = saved[:count], saved[count:]
        given = dict(zip(how.names, inputs))
        d_o, reached, d_reached = of_outputs(how.outputs, d_outputs)
        if d_o is None and not reached:
            return (None, *(None for _ in how.names), *(None for _ in how.buffers))
        if d_o is None:
            d_o = torch.zeros_like(outputs[how.outputs.index("o")], dtype=ctx.dtype)
        d_o = quantize(d_o, given["descale_do"], how.dtype_of_do)
        found = torch.ops.attn.backward(
            how.attention, list(how.names), list(inputs), list(how.params), list(outputs), d_o,
            reached, d_reached,
        )
        made = dict(zip(how.of_backward, found))
        for name, buffer in zip(how.buffers, ctx.buffers):
            buffer.copy_(made[name])
        gradients = {
            name: _scaled_back(made[name], given.get(f"scale_d{name}"), ctx.dtype) for name in INPUTS
        }
        ordered: Sequence[torch.Tensor | None] = [gradients.get(name) for name in how.names]
        if torch.is_grad_enabled():  # create_graph=True; what was saved was rounded, and leads nowhere
            ordered = differentiable_once(ordered, (torch.ones((), requires_grad=True),))
        return (None, *ordered, *(None for _ in how.buffers))
