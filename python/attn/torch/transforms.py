"""Calls within torch.func: grad, vjp, jacrev and vmap. Mapped dims are computed one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from attn.outputs import is_amax
from attn.torch import private
from attn.torch.autograd import refuse_second_derivative
from attn.torch.calls import Call, formed
from attn.torch.execute import run_backward, run_forward
from attn.torch.facts import Facts, facts_of
from attn.torch.statistics import gradient_of_lse, of_outputs



def attend(each: Call) -> Any:
    """Computes a call of tensors that torch.func wraps. The outputs that a caller sees."""
    facts = facts_of(each.attention)
    tensors = tuple(each.tensors.values())
    names: dict[str, Any] = dict.fromkeys(each.tensors)
    bare = each._replace(tensors=names)
    training = torch.is_grad_enabled() and any(map(_needs_gradient, tensors))
    outputs = _forward(bare, training, *tensors)[: len(facts.outputs)]
    return outputs[0] if len(outputs) == 1 else outputs


def _needs_gradient(tensor: torch.Tensor) -> bool:
    """Whether a gradient of the tensor is wanted, at any level."""
    while True:
        if tensor.requires_grad or private.is_tracking(tensor):
            return True
        if not private.is_wrapped(tensor):
            return False
        tensor = private.unwrapped(tensor)


def _with(bare: Call, tensors: Sequence[torch.Tensor]) -> Call:
    return formed(bare._replace(tensors=dict(zip(bare.tensors, tensors))))


def _mapped(function: Any, size: int, in_dims: Sequence[int | None], first: Sequence[Any],
            tensors: Sequence[torch.Tensor]) -> tuple[Any, Any]:
    """A function of tensors for each index of a mapped dim, and where that is in its results."""
    if size == 0:  # results of zeros say the shapes
        tensors = [x if dim is None else x.new_zeros((*x.shape[:dim], 1, *x.shape[dim + 1:]))
                   for x, dim in zip(tensors, in_dims)]
    found = [
        function.apply(*first, *(x if dim is None else x.select(dim, i) for x, dim in zip(tensors, in_dims)))
        for i in range(max(1, size))
    ]
    stacked = tuple(torch.stack(one)[:size] for one in zip(*found))
    return stacked, (0,) * len(stacked)


class _Forward(torch.autograd.Function):
    """The outputs that a backward reads, if `training`, else those that a caller sees."""

    @staticmethod
    def forward(bare: Call, training: bool, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(run_forward(_with(bare, tensors), training))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[torch.Tensor, ...]) -> None:
        ctx.bare, _, *tensors = inputs
        facts = facts_of(ctx.bare.attention)
        ctx.count = len(tensors)
        ctx.save_for_backward(*tensors, *output)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(x for name, x in zip(facts.all_outputs, output) if is_amax(name)))

    @staticmethod
    def backward(ctx: Any, *d_outputs: torch.Tensor | None) -> tuple[Any, ...]:
        facts, saved = facts_of(ctx.bare.attention), ctx.saved_tensors
        d_o, reached, others = of_outputs(facts.all_outputs, d_outputs)
        if d_o is None and not reached:
            return (None,) * int(ctx.count + 2)
        d_o = torch.zeros_like(saved[ctx.count + facts.all_outputs.index(facts.saved_o)]) if d_o is None else d_o
        found = dict(zip(facts.of_backward, _backward(ctx.bare, tuple(reached), *saved, d_o, *others)))
        return (None, None, *(found.get(name) for name in ctx.bare.tensors))

    @staticmethod
    def vmap(info: Any, in_dims: Any, bare: Call, training: bool, *tensors: torch.Tensor) -> Any:
        return _mapped(_Forward, info.batch_size, in_dims[2:], (bare, training), tensors)


class _Backward(torch.autograd.Function):
    """What the facts' `of_backward` names, of the tensors and outputs of a call, and the gradients of o and of the
    statistics that were reached."""

    @staticmethod
    def forward(bare: Call, reached: tuple[str, ...], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        facts: Facts = facts_of(bare.attention)
        count = len(bare.tensors)
        end = count + len(facts.all_outputs)
        d_lse = gradient_of_lse(facts, reached, tensors[end + 1:])
        return tuple(run_backward(_with(bare, tensors[:count]), tensors[count:end], tensors[end], d_lse))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: a second derivative is refused."""

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        refuse_second_derivative()

    @staticmethod
    def vmap(info: Any, in_dims: Any, bare: Call, reached: tuple[str, ...], *tensors: torch.Tensor) -> Any:
        return _mapped(_Backward, info.batch_size, in_dims[2:], (bare, reached), tensors)


_forward: Callable[..., tuple[torch.Tensor, ...]] = _Forward.apply
_backward: Callable[..., tuple[torch.Tensor, ...]] = _Backward.apply
