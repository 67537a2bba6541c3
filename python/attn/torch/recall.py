"""What calls of traced functions find again: attentions by their texts, and the tensors that mods capture. Which
trace is that of a call's mods: known_mods.py."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from attn.attention import Attention
from attn.specs import Spec
from attn.tracing.recipes import Evaluator, Recipe, Source, element, sources, without_values


class Texts:
    """Attentions by the texts that traces gave: mods that are traced at each call find theirs here."""

    def __init__(self, most: int):
        self._most = most
        self._lock = threading.Lock()
        self._attentions: OrderedDict[Any, Attention] = OrderedDict()

    def attention(self, spec: Spec, query: Any, dtype: torch.dtype, kind: str) -> Attention:
        """The attention of a spec for a dtype and a kind of device ("cuda"): one that was made before, if it
        is among those used last. Of `query` only the shape counts. Thread-safe."""
        key = (spec, dtype, kind)
        with self._lock:
            found = self._attentions.get(key)
            if found is None:
                # A call without batches or rows is computed without a spec, which has a size of 1 at least.
                bindings = {dim: 1 for dim, size in zip(("B", "Hq", "Sq"), query.shape) if size == 0}
                found = self._attentions[key] = Attention(spec, bindings)
            self._attentions.move_to_end(key)
            while len(self._attentions) > self._most:
                self._attentions.popitem(last=False)
        return found


class Recalled:
    """An attention, and where the tensors that it captures are among the values that a call reads."""

    def __init__(self, attention: Attention, recipes: Mapping[str, Recipe]):
        done: dict[int, Any] = {}
        self.attention = attention
        self._places: dict[str, int] = {}
        self._computed: dict[str, Any] = {}
        for name, recipe in recipes.items():
            if isinstance(recipe, Source) and recipe.value.ndim > 0:
                self._places[name] = recipe.place
            else:
                self._computed[name] = without_values(recipe, done)

    def tensors(self, values: Sequence[Any]) -> dict[str, Any]:
        """The captured tensors by name, found or computed again in the `values` that a read of the mod gave."""
        found = {name: values[place] for name, place in self._places.items()}
        if self._computed:
            evaluator = Evaluator(lambda source: values[source.place])
            for name, recipe in self._computed.items():
                found[name] = element(evaluator.value(recipe))
        return found

    def read(self, name: str, values: Sequence[Any] | Mapping[int, Any]) -> dict[str, Any]:
        """What a captured tensor is made of, by names: itself, or how it is computed, and of which captured
        tensors."""
        recipe = self._computed.get(name)
        if recipe is None:
            return {name: values[self._places[name]]}
        return {name: recipe, **{f"{name}/{at}": values[one.place] for at, one in enumerate(sources(recipe))}}
