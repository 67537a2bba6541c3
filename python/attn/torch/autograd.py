"""How calls are recorded for autograd, of tensors and in operators, and that a second derivative is refused, which it
would take for zero. Calls that torch.func sees are in transforms.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol, Union

import torch

from attn.errors import UnsupportedError
from attn.outputs import is_o
from attn.torch import private
from attn.torch.statistics import of_outputs

Saved = Sequence[torch.Tensor]  # the tensors of a call, and its outputs
Params = Sequence[float]
Gradient = Union[torch.Tensor, None]


class Way(Protocol):
    """How one call is computed, of its tensors and params. `outputs` are the names of those that a caller sees, the
    first of what `forward` returns; `amax` the places of those that have no gradient. `told`: where all ranks run a
    call, also one whose loss does not depend on o: a context that tells the others what fails in it."""

    outputs: Sequence[str]
    amax: Sequence[int]
    told: Callable[[], AbstractContextManager[None]] | None

    def forward(self, tensors: Sequence[torch.Tensor], params: Params) -> Sequence[torch.Tensor] | None:
        """The outputs; None if it does not apply to the tensors."""

    def gradients(self, saved: Saved, d_o: Gradient, reached: list[str], d_reached: list[torch.Tensor],
                  params: Params) -> Sequence[Gradient] | None:
        """The gradient of each tensor of the call, of those of o and of the statistics that were reached; None if all
        are zero."""


class Unfit(Exception):
    """A way does not apply to the tensors."""


class Recorded(torch.autograd.Function):
    """The outputs that a caller sees, by a way, recorded for autograd. Raises Unfit."""

    @staticmethod
    def forward(ctx: Any, way: Way, params: Params, *tensors: torch.Tensor) -> Any:
        """The output, or a tuple of several. Keeps the way, tensors and all that it computes."""
        outputs = way.forward(tensors, params)
        if outputs is None:
            raise Unfit
        ctx.way, ctx.params = way, params
        ctx.save_for_backward(*tensors, *outputs)
        ctx.set_materialize_grads(False)
        if way.amax:
            ctx.mark_non_differentiable(*(outputs[place] for place in way.amax))
        return outputs[0] if len(way.outputs) == 1 else tuple(outputs[: len(way.outputs)])

    @staticmethod
    def backward(ctx: Any, *d_outputs: Gradient) -> tuple[Gradient, ...]:
        """The gradients of what `forward` was given."""
        way: Way = ctx.way
        if way.told is None:
            saved = ctx.saved_tensors
        else:
            with way.told():
                saved = ctx.saved_tensors
        d_o, reached, d_reached = of_outputs(way.outputs, d_outputs)
        found = way.gradients(saved, d_o, reached, d_reached, ctx.params)
        if found is None:
            return (None,) * len(ctx.needs_input_grad)
        given = [d_output for d_output in d_outputs if d_output is not None]
        return (None, None, *differentiable_once(found, (*saved, *given)))


# The call of a way, recorded.
recorded: Callable[..., Any] = Recorded.apply


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        refuse_second_derivative()


_guarded: Callable[..., tuple[torch.Tensor, ...]] = _Once.apply


def refuse_second_derivative() -> NoReturn:
    """Raises UnsupportedError: a backward cannot be differentiated."""
    raise UnsupportedError(
        "second derivatives of an attention are not computed",
        ["call backward or torch.autograd.grad without create_graph=True"],
    )


def differentiable_once(gradients: Sequence[Gradient], saved: Sequence[torch.Tensor]) -> Sequence[Gradient]:
    """The gradients; their own derivatives, which depend on what was saved, are refused: otherwise they
    would be taken for zero."""
    if not torch.is_grad_enabled():  # without create_graph=True
        return gradients
    found = [gradient for gradient in gradients if gradient is not None]
    guarded = iter(_guarded(len(found), *found, *saved))
    return [None if gradient is None else next(guarded) for gradient in gradients]


# --- operators

_is_recording = torch.is_grad_enabled

Kernel = Callable[..., "list[torch.Tensor]"]


class _OperatorWay:
    """The operator `attn::PREFIXforward` without autograd, and the gradients by `attn::PREFIXbackward`."""

    amax = ()  # callers detach them

    def __init__(self, operators: _Operators, keys: private.KeySet, whose: str, names: list[str],
                 others: tuple[Any, ...]):
        self._operators, self._keys, self._whose, self._names, self._others = operators, keys, whose, names, others
        self.outputs, self._of_backward = operators.names_of(whose)
        told = operators.told
        self.told = None if told is None else lambda: told(whose)

    def forward(self, tensors: Sequence[torch.Tensor], params: Params) -> Sequence[torch.Tensor]:
        return private.redispatched(self._operators.forward, self._keys, self._whose, self._names, list(tensors),
                                    params, *self._others)

    def gradients(self, saved: Saved, d_o: Gradient, reached: list[str], d_reached: list[torch.Tensor],
                  params: Params) -> Sequence[Gradient] | None:
        if d_o is None and not reached and self.told is None:
            return None
        count = len(self._names)
        tensors, outputs = list(saved[:count]), list(saved[count:])
        of_o = next(place for place, name in enumerate(self.outputs) if is_o(name))
        d_o = torch.zeros_like(outputs[of_o]) if d_o is None else d_o
        with torch.no_grad():
            found = self._operators.backward(self._whose, self._names, tensors, params, outputs, d_o, reached,
                                             d_reached)
        gradients = dict(zip(self._of_backward, found))
        return [gradients.get(name) for name in self._names]


class _Operators:
    """A pair of operators, as `register_gradients` is told of it."""

    def __init__(self, prefix: str, names_of: Callable[[str], tuple[Sequence[str], Sequence[str]]],
                 told: Callable[[str], AbstractContextManager[None]] | None):
        self.forward = getattr(torch.ops.attn, f"{prefix}forward").default
        self.backward = getattr(torch.ops.attn, f"{prefix}backward").default
        self.names_of, self.told = names_of, told


def register_gradients(
    library: torch.library.Library,
    prefix: str,
    kernels: tuple[Kernel, Kernel],
    names_of: Callable[[str], tuple[Sequence[str], Sequence[str]]],
    told: Callable[[str], AbstractContextManager[None]] | None = None,
) -> None:
    """Gives the operator `attn::PREFIXforward` the gradients that `attn::PREFIXbackward` computes. `kernels`: what
    computes the two, which is called at once where nothing else sees the operators.

    Both take a text first, by which `names_of` finds the names of what they return. `told`: as in a `Way`.
    """
    operators = _Operators(prefix, names_of, told)
    forward_kernel, backward_kernel = kernels

    def forward(keys: private.KeySet, whose: str, names: list[str], tensors: list[torch.Tensor], params: list[float],
                *others: Any) -> Sequence[torch.Tensor]:
        if _is_recording() and any(tensor.requires_grad for tensor in tensors):
            found = recorded(_OperatorWay(operators, keys, whose, names, others), params, *tensors)
            return [found] if isinstance(found, torch.Tensor) else list(found)
        if private.is_plain(keys):
            return forward_kernel(whose, names, tensors, params, *others)
        return private.redispatched(operators.forward, keys, whose, names, tensors, params, *others)

    def backward(keys: private.KeySet, whose: str, names: list[str], tensors: list[torch.Tensor], params: list[float],
                 outputs: list[torch.Tensor], d_o: torch.Tensor, reached: list[str],
                 d_reached: list[torch.Tensor]) -> Sequence[Gradient]:
        given = whose, names, tensors, params, outputs, d_o, reached, d_reached
        if not _is_recording() and private.is_plain(keys):
            return backward_kernel(*given)
        found = private.redispatched(operators.backward, keys, *given)
        return list(differentiable_once(found, (*tensors, *outputs, d_o, *d_reached)))

    library.impl(f"{prefix}forward", forward, "Autograd", with_keyset=True)
    library.impl(f"{prefix}backward", backward, "Autograd", with_keyset=True)
