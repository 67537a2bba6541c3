"""Outputs beside o that say something of the softmax: lse, max, sum_exp and their like. They have no gradient
yet, and a backward that reaches one is refused: it would be taken for zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch

from attn.errors import Unsupported
from attn.outputs import is_statistic

is_capturing = torch.cuda.is_current_stream_capturing


def of_outputs(
    names: Sequence[str], gradients: Sequence[torch.Tensor | None]
) -> tuple[torch.Tensor | None, list[str], list[torch.Tensor]]:
    """The gradient of o, and the statistics whose gradients there are: names and gradients. None is of an
    output that the backward did not reach; gradients that are missing at the end count as None."""
    found = {name: gradient for name, gradient in zip(names, gradients) if gradient is not None}
    reached = [name for name in found if is_statistic(name)]
    return found.get("o"), reached, [found[name] for name in reached]


def refuse(reached: Sequence[str], gradients: Sequence[torch.Tensor]) -> None:
    """Raises Unsupported if the gradient of a statistic is not zero. Waits for the device to know it; during a
    capture, the graph asserts it on the device."""
    for name, gradient in zip(reached, gradients):
        if gradient.is_cuda and is_capturing():
            torch._assert_async(~gradient.any(), _message(name))
        elif gradient.any():
            _refuse(name)


def gradient_of_o(names: Sequence[str], gradients: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """The gradient of o; None if the backward reached no output, or no more than with zeros. Raises what `refuse`
    does."""
    d_o, reached, others = of_outputs(names, gradients)
    refuse(reached, others)
    return d_o


def _message(name: str) -> str:
    return f"{name} has no gradient yet, and the backward reached it: only o has one"


def _refuse(name: str) -> NoReturn:
    notes = [f"if no gradient is meant, compute with {name}.detach()"]
    if name == "lse":
        notes.insert(
            0,
            "a sink, `o * sigmoid(lse - sink)`, is a clause of a spec, with all gradients:"
            " `learn sinks: f32[Hq]; sink sinks[h];`",
        )
    raise Unsupported(_message(name), notes)
