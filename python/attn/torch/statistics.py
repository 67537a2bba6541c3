"""Outputs beside o that say something of the softmax: lse, max, sum_exp and their like. Of these, lse has gradients;
a backward that reaches another one is refused: it would be taken for zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import torch

from attn.errors import UnsupportedError
from attn.outputs import is_amax
from attn.torch import private

if TYPE_CHECKING:
    from attn.torch.facts import Facts

is_capturing = torch.cuda.is_current_stream_capturing


def of_outputs(
    names: Sequence[str], gradients: Sequence[torch.Tensor | None]
) -> tuple[torch.Tensor | None, list[str], list[torch.Tensor]]:
    """The gradient of o, and the other outputs whose gradients there are: names and gradients. None is of an
    output that the backward did not reach; gradients that are missing at the end count as None."""
    found = {name: gradient for name, gradient in zip(names, gradients) if gradient is not None}
    reached = [name for name in found if name != "o" and not is_amax(name)]
    return found.get("o"), reached, [found[name] for name in reached]


def gradient_of_lse(
    facts: Facts, reached: Sequence[str], gradients: Sequence[torch.Tensor]
) -> torch.Tensor | None:
    """The gradient of lse, if it is among those that a backward reached and counts; None if it is zero.

    A backward through lse takes a plan of its own, so until one was made the gradient is looked at, which waits
    for the device; during a capture, the graph asserts there that it is zero. Raises UnsupportedError if that of
    another statistic is not zero."""
    found = dict(zip(reached, gradients))
    of_lse = found.pop("lse", None) if facts.quantized is None else None
    refuse(list(found), list(found.values()))
    if of_lse is None or facts.reaches_lse or facts.through_lse:
        return of_lse
    if of_lse.is_cuda and is_capturing():
        private.assert_later(~of_lse.any(), _NOT_CAPTURED)
        return None
    return of_lse if of_lse.any() else None


_NOT_CAPTURED = (
    "a gradient of lse is not zero, and no backward through lse was before this capture: call it once"
)


def refuse(reached: Sequence[str], gradients: Sequence[torch.Tensor]) -> None:
    """Raises UnsupportedError if the gradient of a statistic is not zero. Waits for the device to know it; during a
    capture, the graph asserts it on the device."""
    for name, gradient in zip(reached, gradients):
        if gradient.is_cuda and is_capturing():
            private.assert_later(~gradient.any(), _message(name))
        elif gradient.any():
            _refuse(name)


def _message(name: str) -> str:
    if name == "lse":
        return "lse has no gradient here, and the backward reached it: only o has one"
    return f"{name} has no gradient, and the backward reached it: only o and lse have one"


def _refuse(name: str) -> NoReturn:
    notes = [f"if no gradient is meant, compute with {name}.detach()"]
    if name == "lse":
        notes.insert(0, "8-bit attention has none; one of several GPUs has, if its spec says so: `grad q, k, v, lse;`")
    raise UnsupportedError(_message(name), notes)
