"""How a call is computed and recorded for autograd: in steps that look at everything, or in a short one, by the
launches of a call that was like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch

from attn.arguments import INPUTS, RANDOM
from attn.forms import LSE_GRADIENT, differentiated
from attn.outputs import is_amax
from attn.torch import private
from attn.torch.autograd import Gradient, Recorded, Saved, Unfit, recorded
from attn.torch.calls import Call, add_random
from attn.torch.execute import run_backward, run_forward
from attn.torch.facts import Facts, facts_of
from attn.torch.launch import Launch
from attn.torch.plans import key_of
from attn.torch.signature import PLAIN
from attn.torch.statistics import gradient_of_lse
from attn.torch.variant import Pair



class Way:
    """Computes calls like `each` step by step, of tensors and params in its order. Keeps no tensor. Outputs that are
    saved are those that `all_outputs` of the facts names."""

    told = None

    def __init__(self, each: Call, training: bool):
        facts = facts_of(each.attention)
        self.facts = facts
        self.outputs = facts.outputs
        self.amax = tuple(place for place, name in enumerate(facts.outputs) if is_amax(name))
        self._names = tuple(each.tensors)
        self._params = facts.params
        self._training = training
        self._call = each._replace(tensors={}, params={})
        of = facts.differentiated
        self._places = [of.index(name) if name in of else None for name in self._names]

    def forward(self, tensors: Sequence[torch.Tensor], params: Sequence[float]) -> Any:
        """The outputs that the operators return."""
        return run_forward(self._with(tensors, params), self._training)

    def output(self, name: str, saved: Saved) -> torch.Tensor:
        """An output of a call that was recorded."""
        return saved[len(self._names) + self.facts.all_outputs.index(name)]

    def backward(
        self, saved: Saved, d_o: torch.Tensor, d_lse: torch.Tensor | None, params: Sequence[float]
    ) -> Sequence[torch.Tensor]:
        """What the facts' `of_backward` names. `d_lse`: the gradient of lse; None if it is zero."""
        count = len(self._names)
        with torch.no_grad():
            return run_backward(self._with(saved[:count], params), saved[count:], d_o, d_lse)

    def gradients(self, saved: Saved, d_o: Gradient, reached: list[str], d_reached: list[torch.Tensor],
                  params: Sequence[float]) -> Sequence[Gradient] | None:
        """The gradient of each tensor of the call; None if all are zero."""
        d_lse = gradient_of_lse(self.facts, reached, d_reached)
        if d_o is None and d_lse is None:
            return None
        d_o = torch.zeros_like(self.output(self.facts.saved_o, saved)) if d_o is None else d_o
        found = self.backward(saved, d_o, d_lse, params)
        return [None if place is None else found[place] for place in self._places]

    def _with(self, tensors: Sequence[torch.Tensor], params: Sequence[float]) -> Call:
        named = dict(zip(self._names, tensors))
        return self._call._replace(tensors=named, params=dict(zip(self._params, params)))


class _ShortBackward:
    """The launch of a backward, of the tensors of a call, its outputs and their gradients."""

    def __init__(self, launch: Launch, names: Sequence[str], facts: Facts):
        self.reads_d_lse = LSE_GRADIENT in launch.inputs
        given = (*names, *facts.all_outputs, "do", *((LSE_GRADIENT,) if self.reads_d_lse else ()))
        self._run = launch.run_direct
        self._inputs = _picker(launch.inputs, given)
        self._params = _picker(launch.params, facts.params)
        self._gradients = _picker(facts.of_backward, [differentiated(name) for name in launch.outputs])

    def run(self, given: Sequence[torch.Tensor], params: Sequence[float]) -> Any:
        """What the facts' `of_backward` names; None if it does not apply."""
        found = self._run(self._inputs(given), self._params(params))
        return None if found is None else self._gradients(found)


class ShortWay(Way):
    """The same by the launches of one pair, at once: no argument is looked at in Python.

    `lends`: no memory is kept between calls. It does not apply to tensors that are not as the plans expect them, nor
    to streams that are being captured into a CUDA graph.
    """

    def __init__(self, each: Call, training: bool, pair: Pair, lends: bool = False):
        super().__init__(each, training)
        facts = facts_of(each.attention)
        forward, backward = pair.forward, pair.backward
        self._lends = lends
        if lends:
            forward, backward = forward.lent, None if backward is None else backward.lent
        shown = facts.all_outputs if training else facts.outputs
        self._run_forward = forward.run_direct
        self._inputs = _picker(forward.inputs, self._names)
        self._shown = _picker(shown, forward.outputs)
        self._forward_params = _picker(forward.params, facts.params)
        self._key = key_of(each.form, each.tensors["q"].device, training)
        self._backward = None if backward is None else _ShortBackward(backward, self._names, facts)
        self._through_lse: _ShortBackward | None = None

    def forward(self, tensors: Sequence[torch.Tensor], params: Sequence[float]) -> Any:
        """The outputs that the operators return; None if this way does not apply."""
        outputs = self._run_forward(self._inputs(tensors), self._forward_params(params))
        return None if outputs is None else self._shown(outputs)

    def backward_at_once(
        self, saved: Saved, d_o: torch.Tensor, d_lse: torch.Tensor | None, params: Sequence[float]
    ) -> Any:
        """`backward`; None if this way does not apply."""
        short = self._backward
        if short is not None and d_lse is not None and not short.reads_d_lse:
            short = self._beside()
        if short is None:
            return None
        if not short.reads_d_lse:
            return short.run((*saved, d_o), params)
        d_lse = torch.zeros_like(self.output("lse", saved)) if d_lse is None else d_lse
        return short.run((*saved, d_o, d_lse), params)

    def _beside(self) -> _ShortBackward | None:
        """The backward that reads the gradient of lse, which that of the pair does not, once there is one."""
        if self._through_lse is None:
            launch = self.facts.through_lse.get(self._key)
            if launch is not None:
                self._through_lse = _ShortBackward(launch.lent if self._lends else launch, self._names, self.facts)
        return self._through_lse

    def backward(
        self, saved: Saved, d_o: torch.Tensor, d_lse: torch.Tensor | None, params: Sequence[float]
    ) -> Sequence[torch.Tensor]:
        """What the facts' `of_backward` names, step by step if this way does not apply."""
        found = self.backward_at_once(saved, d_o, d_lse, params)
        return super().backward(saved, d_o, d_lse, params) if found is None else found


def _picker(wanted: Sequence[str], given: Sequence[str]) -> Any:
    """A function of a tuple in the order of `given`: a tuple in the order of `wanted`."""
    if tuple(wanted) == tuple(given):
        return tuple
    places = [given.index(name) for name in wanted]
    if len(places) == 1:
        return lambda values: (values[places[0]],)
    return itemgetter(*places) if places else lambda values: ()


# Function.apply without what it does for setup_context and functorch, which calls of short ways do not have.
_record = private.apply_of(Recorded)


def attend(each: Call) -> Any:
    """Computes a call step by step. The outputs that a caller sees."""
    tensors, params = tuple(each.tensors.values()), tuple(each.params.values())
    training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    way = Way(each, training)
    if training:
        return recorded(way, params, *tensors)
    outputs = way.forward(tensors, params)
    return outputs[0] if len(outputs) == 1 else outputs


# Looked up once: a call takes a few microseconds.
_is_autocast = torch.is_autocast_enabled
_is_deterministic = torch.are_deterministic_algorithms_enabled
_is_recording = torch.is_grad_enabled
_is_transformed = private.is_transformed


class Recent:
    """The last call of an attention on a GPU, with q, k and v by their order."""

    def __init__(self, each: Call, pair: Pair, kwargs: Mapping[str, Any]):
        facts = facts_of(each.attention)
        names = tuple(each.tensors)
        self._keys = tuple(kwargs)
        self._random = tuple(name for name in RANDOM if facts.random and name not in kwargs)
        given = (*INPUTS, *self._keys)
        kept = [name for name in names if name not in (*given, *self._random)]
        self._kept = tuple(each.tensors[name] for name in kept)
        self._tensors = _picker(names, (*given, *kept, *self._random))
        self._params = _picker(facts.params, (*given, *kept)) if set(facts.params) <= set(given) else None
        self._only_args = names == INPUTS and not facts.params
        self._deterministic = _is_deterministic()
        self._shown = len(facts.outputs)
        self._trains = pair.backward is not None and facts.keeps_types
        self._way = ShortWay(each, self._trains, pair)

    def call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What `attn.torch.call` returns, or None if this call is not like the recent one."""
        if (
            len(args) != 3
            or tuple(kwargs) != self._keys
            or _is_autocast("cuda")
            or _is_deterministic() != self._deterministic
            or self._params is None
            or private.count_modes() > 0
            or _is_transformed()
        ):
            return None
        tensors, params = (args, ()) if self._only_args else self._sorted(args, kwargs)
        try:
            if _is_recording():
                for tensor in tensors:
                    if type(tensor) not in PLAIN:  # if it is no tensor at all, the longer way says so
                        return None
                    if tensor.requires_grad:
                        return _record(self._way, params, *tensors) if self._trains else None
        except Unfit:
            return None
        outputs = self._way.forward(tensors, params)
        if outputs is None:
            return None
        return outputs[0] if self._shown == 1 else outputs[: self._shown]

    def _sorted(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        values = (*args, *kwargs.values(), *self._kept)
        params = () if self._params is None else self._params(values)
        if self._random:
            random = {name: value for name, value in kwargs.items() if name in RANDOM}
            add_random(random, args[0].device)
            values = (*values, *(random[name] for name in self._random))
        return self._tensors(values), params


def remember(each: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Keeps a short way for calls like this one, which ran."""
    facts = facts_of(each.attention)
    device = each.tensors["q"].device
    if device.type != "cuda" or len(args) != len(INPUTS) or facts.said.held:
        return
    for training in (True, False):
        pair = facts.pairs.get(key_of(each.form, device, training))
        if pair is not None:
            each.attention._recent = Recent(each, pair, kwargs)
            return
