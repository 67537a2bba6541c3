"""The last call of an attention on a GPU, which one like it repeats: no argument is looked at in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from attn.arguments import INPUTS, RANDOM
from attn.torch.calls import PLAIN, Call, add_random, count_modes
from attn.torch.facts import facts_of
from attn.torch.plans import key_of
from attn.torch.variant import Pair
from attn.torch.ways import ShortWay, Unfit, picker, record

# Looked up once: a call takes a few microseconds.
_is_autocast = torch.is_autocast_enabled
_is_deterministic = torch.are_deterministic_algorithms_enabled
_is_recording = torch.is_grad_enabled
_is_transformed = torch._C._are_functorch_transforms_active


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
        self._tensors = picker(names, (*given, *kept, *self._random))
        self._params = picker(facts.params, (*given, *kept)) if set(facts.params) <= set(given) else None
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
                        return record(self._way, params, *tensors) if self._trains else None
        except Unfit:
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


def remember(each: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Keeps a short way for calls like this one, which ran."""
    facts = facts_of(each.attention)
    device = each.tensors["q"].device
    if device.type != "cuda" or len(args) != len(INPUTS):
        return
    for training in (True, False):
        pair = facts.variants.find(key_of(each.form, device, training))
        if pair is not None:
            each.attention._recent = Recent(each, pair, kwargs)
            return
