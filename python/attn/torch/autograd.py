"""What autograd is told: the gradients of operators, and that a second derivative is refused, which it would take for
zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import torch

from attn.errors import Unsupported
from attn.outputs import is_o
from attn.torch.statistics import of_outputs


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        refuse_second_derivative()


def refuse_second_derivative() -> NoReturn:
    """Raises Unsupported: a backward cannot be differentiated."""
    raise Unsupported(
        "second derivatives of an attention are not computed",
        ["call backward or torch.autograd.grad without create_graph=True"],
    )


def differentiable_once(
    gradients: Sequence[torch.Tensor | None], saved: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor | None]:
    """The gradients; their own derivatives, which depend on what was saved, are refused: otherwise they
    would be taken for zero."""
    if not torch.is_grad_enabled():  # without create_graph=True
        return gradients
    found = [gradient for gradient in gradients if gradient is not None]
    guarded = iter(_Once.apply(len(found), *found, *saved))
    return [None if gradient is None else next(guarded) for gradient in gradients]


def register_gradients(
    library: torch.library.Library,
    prefix: str,
    names_of: Callable[[str], tuple[Sequence[str], Sequence[str]]],
    told: Callable[[str], AbstractContextManager] | None = None,
) -> None:
    """Gives the operator `attn::PREFIXforward` the gradients that `attn::PREFIXbackward` computes.

    Both take a text first, by which `names_of` finds the names of what they return. `told`: of operators that all
    ranks run, also one whose loss does not depend on o: a context that tells the others what fails in it.
    """
    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.whose, ctx.names, tensors, ctx.params, *others = inputs
        ctx.counts = len(tensors), len(others)
        ctx.save_for_backward(*tensors, *output)
        ctx.set_materialize_grads(False)

    def differentiate(ctx: Any, d_outputs: Any) -> Any:
        with nullcontext() if told is None else told(ctx.whose):
            saved = ctx.saved_tensors
        count, others = ctx.counts
        tensors, outputs = list(saved[:count]), list(saved[count:])
        shown, of_backward = names_of(ctx.whose)
        d_o, reached, d_reached = of_outputs(shown, d_outputs)
        gradients = {}
        if d_o is not None or reached or told is not None:
            of_o = next(place for place, name in enumerate(shown) if is_o(name))
            d_o = torch.zeros_like(outputs[of_o]) if d_o is None else d_o
            backward = getattr(torch.ops.attn, f"{prefix}backward")
            found = backward(ctx.whose, ctx.names, tensors, ctx.params, outputs, d_o, reached, d_reached)
            gradients = dict(zip(of_backward, found))
        # PyTorch keeps the structure of an empty list.
        without = (None if ctx.params else [], *(None,) * others)
        return None, None, [gradients.get(name) for name in ctx.names], *without

    torch.library.register_autograd(
        f"attn::{prefix}backward", lambda *_: refuse_second_derivative(), lib=library)
    torch.library.register_autograd(
        f"attn::{prefix}forward", differentiate, setup_context=setup, lib=library)
