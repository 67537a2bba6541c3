"""Short ways for calls that are like one before: no argument is looked at in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch

from attn.arguments import INPUTS, RANDOM
from attn.outputs import is_amax
from attn.torch.function import (
    PLAIN,
    Call,
    add_random,
    count_modes,
    differentiable_once,
    facts_of,
    run_backward,
)
from attn.torch.statistics import gradient_of_o
from attn.torch.variant import Pair, differentiated


def _picker(wanted: Sequence[str], given: Sequence[str]) -> Any:
    """A function of a tuple in the order of `given`: a tuple in the order of `wanted`."""
    if tuple(wanted) == tuple(given):
        return tuple
    places = [given.index(name) for name in wanted]
    if len(places) == 1:
        return lambda values: (values[places[0]],)
    return itemgetter(*places) if places else lambda values: ()


class Way:
    """The launches of one pair for tensors in a fixed order, those of a call.

    What they return is None for tensors that are not as the plans expect them, and for streams that are
    being captured into a CUDA graph.
    """

    def __init__(self, each: Call, pair: Pair, training: bool):
        facts = facts_of(each.attention)
        names = tuple(each.tensors)
        forward, backward = pair.forward, pair.backward
        shown = facts.all_outputs if training else facts.outputs
        self._run_forward = forward.run_direct
        self._inputs = _picker(forward.inputs, names)
        self._outputs = _picker(shown, forward.outputs)
        self._params = _picker(forward.params, facts.params)
        self._backward = backward
        if backward is not None:
            self._saved = _picker(backward.inputs, (*names, *facts.all_outputs, "do"))
            self._saved_params = _picker(backward.params, facts.params)
            self._gradients = _picker(
                facts.of_backward, [differentiated(name) for name in backward.outputs]
            )

    def forward(self, tensors: Sequence[torch.Tensor], params: Sequence[float]) -> Any:
        """The outputs that the operators return."""
        outputs = self._run_forward(self._inputs(tensors), self._params(params))
        return None if outputs is None else self._outputs(outputs)

    def backward(
        self,
        tensors: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        d_o: torch.Tensor,
        params: Sequence[float],
    ) -> Any:
        """What the facts' `of_backward` names."""
        if self._backward is None:
            return None
        found = self._backward.run_direct(
            self._saved((*tensors, *outputs, d_o)), self._saved_params(params)
        )
        return None if found is None else self._gradients(found)


# Looked up once: a call takes a few microseconds.
_is_autocast = torch.is_autocast_enabled
_is_deterministic = torch.are_deterministic_algorithms_enabled
_is_recording = torch.is_grad_enabled
_is_transformed = torch._C._are_functorch_transforms_active


class Recent:
    """The last call of an attention on a GPU, with q, k and v by their order."""

    def __init__(self, each: Call, pair: Pair, kwargs: Mapping[str, Any]):
        facts = facts_of(each.attention)
        self._call = each
        self._names = tuple(each.tensors)
        self._keys = tuple(kwargs)
        self._random = tuple(name for name in RANDOM if facts.random and name not in kwargs)
        given = (*INPUTS, *self._keys)
        kept = [name for name in self._names if name not in (*given, *self._random)]
        self._kept = tuple(each.tensors[name] for name in kept)
        self._tensors = _picker(self._names, (*given, *kept, *self._random))
        self._params = _picker(facts.params, (*given, *kept)) if set(facts.params) <= set(given) else None
        self._only_args = self._names == INPUTS and not facts.params
        self._deterministic = _is_deterministic()
        self._shown = len(facts.outputs)
        self.outputs = facts.outputs
        self._trains = pair.backward is not None and facts.keeps_types
        self._way = Way(each, pair, self._trains)
        learned = (*INPUTS, *facts.learned)
        self._places = [learned.index(name) if name in learned else None for name in self._names]

    def call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What `attn.torch.call` returns, or None if this call is not like the recent one."""
        if (
            len(args) != 3
            or tuple(kwargs) != self._keys
            or _is_autocast("cuda")
            or _is_deterministic() != self._deterministic
            or self._params is None
            or count_modes() > 0
            or _is_transformed()
        ):
            return None
        tensors, params = (args, ()) if self._only_args else self._sorted(args, kwargs)
        for tensor in tensors:
            if type(tensor) not in PLAIN:  # if it is no tensor at all, the longer way says so
                return None
        try:
            if _is_recording():
                for tensor in tensors:
                    if tensor.requires_grad:
                        return _record(self, params, *tensors) if self._trains else None
        except _Unfit:
            return None
        outputs = self._way.forward(tensors, params)
        if outputs is None:
            return None
        return outputs[0] if self._shown == 1 else outputs[: self._shown]

    def _sorted(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        values = (*args, *kwargs.values(), *self._kept)
        params = self._params(values)
        if self._random:
            random = {name: value for name, value in kwargs.items() if name in RANDOM}
            add_random(random, args[0].device)
            values = (*values, *(random[name] for name in self._random))
        return self._tensors(values), params

    def forward(self, tensors: Sequence[torch.Tensor], params: Sequence[float]) -> Any:
        """Executes the forward with tensors and params in the order of the call that is repeated."""
        return self._way.forward(tensors, params)

    def backward(
        self, tensors: Sequence[torch.Tensor], d_o: torch.Tensor, params: Sequence[float]
    ) -> list[torch.Tensor | None]:
        """The gradient of each tensor of the call. `tensors`: those and the outputs."""
        count = len(self._names)
        inputs, outputs = tensors[:count], tensors[count:]
        found = self._way.backward(inputs, outputs, d_o, params)
        if found is None:
            facts = facts_of(self._call.attention)
            each = self._call._replace(
                tensors=dict(zip(self._names, inputs)), params=dict(zip(facts.params, params))
            )
            with torch.no_grad():
                gradients = run_backward(each, outputs, d_o)
            return [gradients.get(name) for name in self._names]
        return [None if place is None else found[place] for place in self._places]


class _Unfit(Exception):
    """The tensors are not those of the recent call's plan."""


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recent: Recent, params: tuple[float, ...], *tensors: torch.Tensor) -> Any:
        outputs = recent.forward(tensors, params)
        if outputs is None:
            raise _Unfit
        ctx.recent, ctx.params = recent, params
        ctx.save_for_backward(*tensors, *outputs)
        ctx.set_materialize_grads(False)
        if recent._shown == 1:
            return outputs[0]
        ctx.mark_non_differentiable(*(x for name, x in zip(recent.outputs, outputs) if is_amax(name)))
        return outputs[: recent._shown]

    @staticmethod
    def backward(ctx: Any, *d_outputs: torch.Tensor | None) -> tuple[Any, ...]:
        d_o = gradient_of_o(ctx.recent.outputs, d_outputs)
        if d_o is None:
            return (None, None, *(None for _ in ctx.recent._names))
        saved = ctx.saved_tensors
        found = ctx.recent.backward(saved, d_o, ctx.params)
        return (None, None, *differentiable_once(found, (*saved, d_o)))


# Function.apply without what it does for setup_context and functorch, which calls here do not have.
_record = super(torch.autograd.Function, _Recorded).apply
