"""Gradients have no gradients: a second derivative is refused, where autograd would take it for zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from attn.errors import Unsupported


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
