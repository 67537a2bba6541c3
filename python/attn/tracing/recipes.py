"""How tensors that a mod computes of captured ones are computed again before each call."""
from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping


@dataclass(eq=False)
class Source:
    """A captured tensor or array. `place` says where a later call finds it: among what a mod reads, or by its name in a
    module; None if nobody knows."""

    value: Any
    place: Any  # a number, a name, or None


@dataclass(eq=False)
class Made:
    """What a mod makes of constants."""

    value: Any


@dataclass(eq=False)
class Computed:
    """`function(*args, **kwargs)`, where Recipes in the arguments stand for their tensors. `records`: whether
    autograd records it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    records: bool = True


@dataclass(eq=False)
class Part:
    """One of several results."""

    of: Computed
    place: int


Recipe = Source | Made | Computed | Part


def mapped(value: Any, each: Callable[[Any], Any]) -> Any:
    """An argument with `each` of what is in its lists and tuples."""
    if isinstance(value, list):
        return [mapped(one, each) for one in value]
    return tuple(mapped(one, each) for one in value) if isinstance(value, tuple) else each(value)


class Evaluator:
    """Computes recipes, each once. `source` gives the tensors of Sources."""

    def __init__(self, source: Callable[[Source], Any]):
        self._source = source
        self._done: dict[int, Any] = {}

    def value(self, recipe: Any) -> Any:
        """The value of a recipe, computed once. A value that is no recipe is returned as it is."""
        if isinstance(recipe, Source):
            return self._source(recipe)
        if isinstance(recipe, Made):
            return recipe.value
        if not isinstance(recipe, (Computed, Part)):
            return recipe
        if id(recipe) not in self._done:
            self._done[id(recipe)] = self._new(recipe)
        return self._done[id(recipe)]

    def _new(self, recipe: Computed | Part) -> Any:
        if isinstance(recipe, Part):
            return self.value(recipe.of)[recipe.place]
        args = mapped(recipe.args, self.value)
        kwargs = {name: mapped(value, self.value) for name, value in recipe.kwargs.items()}
        with _as_traced(recipe.records):
            return recipe.function(*args, **kwargs)


@contextlib.contextmanager
def _as_traced(records: bool) -> Any:
    """Computes in the tensors' own types, whatever torch.autocast says, as when it was traced."""
    torch = sys.modules.get("torch")
    with contextlib.ExitStack() as stack:
        if torch is not None:
            for device in ("cpu", "cuda"):
                if torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
            if not records:
                stack.enter_context(torch.no_grad())
        yield


def with_leaves(recipe: Any, each: Callable[[Source | Made], Recipe], done: dict[int, Any]) -> Any:
    """The recipe, with others instead of the tensors of which it is made. `done`: what was replaced before."""
    if id(recipe) in done:
        return done[id(recipe)]
    found = recipe
    if isinstance(recipe, (Source, Made)):
        found = each(recipe)
    elif isinstance(recipe, Part):
        found = Part(with_leaves(recipe.of, each, done), recipe.place)
    elif isinstance(recipe, Computed):
        def inner(value: Any) -> Any:
            return with_leaves(value, each, done) if isinstance(value, Recipe) else value

        found = Computed(recipe.function, mapped(recipe.args, inner),
                         {name: mapped(value, inner) for name, value in recipe.kwargs.items()}, recipe.records)
    done[id(recipe)] = found
    return found


def without_values(recipe: Any, done: dict[int, Any]) -> Any:
    """The recipe, with Sources that keep no tensor alive."""
    return with_leaves(recipe, lambda leaf: Source(None, leaf.place) if isinstance(leaf, Source) else leaf, done)


def sources(recipe: Any) -> list[Source]:
    """The captured tensors of which it is made."""
    if isinstance(recipe, Source):
        return [recipe]
    if isinstance(recipe, Part):
        return sources(recipe.of)
    if isinstance(recipe, Computed):
        return sources([*recipe.args, *recipe.kwargs.values()])
    return [each for one in recipe for each in sources(one)] if isinstance(recipe, (list, tuple)) else []


def element(value: Any) -> Any:
    """A captured tensor as specs know it: with one dimension, if it has none."""
    return value.reshape(1) if value.ndim == 0 else value


class Captured(Mapping[str, Any]):
    """The tensors that an attention captures, by name. Those named in `computed`, which its functions compute of other
    tensors, are computed each time they are asked for."""

    def __init__(self, recipes: Mapping[str, Recipe]):
        self._recipes = dict(recipes)
        self.computed = tuple(name for name, recipe in recipes.items()
                              if not isinstance(recipe, (Source, Made)) or recipe.value.ndim == 0)

    @property
    def recipes(self) -> Mapping[str, Recipe]:
        """How each tensor is found."""
        return self._recipes

    def __getitem__(self, name: str) -> Any:
        return element(Evaluator(lambda source: source.value).value(self._recipes[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._recipes)

    def update(self, given: Mapping[str, Any]) -> None:
        """Replaces tensors."""
        self._recipes.update({name: Made(value) for name, value in given.items()})
        self.computed = tuple(name for name in self.computed if name not in given)

    @property
    def identities(self) -> tuple[tuple[str, int], ...]:
        """Equal for the same tensors, computed in the same way; as long as this lives."""
        return tuple((name, id(recipe.value if isinstance(recipe, (Source, Made)) else recipe))
                     for name, recipe in self._recipes.items())

    def __len__(self) -> int:
        return len(self._recipes)


def identities(captured: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Equal for the same captured tensors, as long as they live."""
    if isinstance(captured, Captured):
        return captured.identities
    return tuple((name, id(tensor)) for name, tensor in captured.items())
