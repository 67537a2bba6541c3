"""An attention as a layer of a model."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from attn.arguments import extent
from attn.attention import compile as compile_attention
from attn.errors import ArgumentError
from attn.specs import Input
from attn.torch.signature import TORCH_DTYPES
from attn.tracing.recipes import Captured, Evaluator, Made, Recipe, Source, element, with_leaves
from attn.types import Mod, Outputs


class Attention(torch.nn.Module):
    """A compiled attention whose learned tensors are parameters of the module, by their names in the spec.

    `spec`, `score_mod`, `mask_mod` and `options` are those of `attn.compile`: sizes, `layout`, `engine`, ..
    Learned tensors are zeros, of the spec's shapes and types, for which the sizes that they name must be given;
    `learned` has others by name, whose elements are copied. Of mods, the tensors that they capture, also those of which
    they compute others, are those of the module: parameters, and of tensors that are none buffers that are not saved,
    which move with it; what mods compute of them is computed in each call. A captured tensor that requires a gradient
    and is no Parameter is refused. `device`: of the parameters that are made.

    A model may be cast, `model.bfloat16()`: calls cast tensors back to the types that the spec declares.

    Raises ArgumentError for a size that is missing, an unknown name, one that every module has (`training`), and
    elements of another shape; and what `attn.compile` raises. As thread-safe as any module.
    """

    def __init__(self, spec: object = None, *, score_mod: Mod | None = None, mask_mod: Mod | None = None,
                 learned: Mapping[str, torch.Tensor] | None = None,
                 device: torch.device | str | None = None, **options: object):
        super().__init__()
        settings: dict[str, Any] = options
        self.attention = compile_attention(spec, score_mod=score_mod, mask_mod=mask_mod, **settings)
        said = self.attention.described
        captured = self.attention.captured
        recipes = captured.recipes if isinstance(captured, Captured) else {}
        self._dtypes: dict[str, torch.dtype] = {}  # as they are declared
        self._recipes = self._take(recipes)
        for name in said.learned:
            if name not in recipes:
                made = torch.zeros(_shape(name, said.inputs[name], said.sizes),
                                   dtype=TORCH_DTYPES[said.inputs[name].dtype], device=device)
                self._register(name, torch.nn.Parameter(made))
                self._recipes[name] = Source(None, name)
        for name, value in (learned or {}).items():
            self._learn(name, value)

    def _take(self, recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
        """Registers the tensors that mods capture, each once. Returns the recipes, of their names in the module."""
        names: dict[int, str] = {}  # by the ids of tensors
        done: dict[int, Any] = {}

        def name_of(value: torch.Tensor, wish: str) -> str:
            if id(value) not in names:
                free = (wish if at == 1 else f"{wish}_{at}" for at in itertools.count(1))
                names[id(value)] = next(name for name in free if name not in self._dtypes)
                self._register(names[id(value)], value)
            return names[id(value)]

        def taken(leaf: Source | Made, wish: str) -> Recipe:
            value = leaf.value
            return Source(None, name_of(value, wish)) if isinstance(value, torch.Tensor) else leaf

        # First those that are captured as they are, which have their names in the spec.
        ordered = sorted(recipes.items(), key=lambda item: not isinstance(item[1], Source))
        found = {name: with_leaves(recipe, functools.partial(taken, wish=name), done) for name, recipe in ordered}
        return {name: found[name] for name in recipes}

    def _register(self, name: str, value: torch.Tensor) -> None:
        if hasattr(self, name):
            raise ArgumentError(f"`{name}` is a tensor of the attention, and modules have something of this name",
                                ["give the tensor another name"])
        if isinstance(value, torch.nn.Parameter):
            self.register_parameter(name, value)
        elif value.requires_grad:
            raise ArgumentError(f"`{name}`, which a mod captures, requires a gradient and is no Parameter, so that no"
                                " optimizer of the module would find it",
                                ["capture torch.nn.Parameter(x), or x.detach() if it is not learned"])
        else:
            self.register_buffer(name, value, persistent=False)
        self._dtypes[name] = value.dtype

    def _learn(self, name: str, value: torch.Tensor) -> None:
        """Copies the elements of a learned tensor."""
        said = self.attention.described
        if name not in said.learned:
            raise ArgumentError(f"learned: `{said.name}` learns no tensor `{name}`",
                                [f"it learns {', '.join(said.learned) or 'none'}"])
        recipe = self._recipes[name]
        if not isinstance(recipe, Source):
            raise ArgumentError(f"learned: `{name}` is computed by a mod of other tensors",
                                ["change those that it captures"])
        parameter = self.get_parameter(recipe.place)
        if parameter.shape != value.shape:
            raise ArgumentError(f"learned: `{name}` has the shape {list(value.shape)}; it must be"
                                f" {list(parameter.shape)}")
        with torch.no_grad():
            parameter.copy_(value)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **inputs: object) -> Outputs:
        """What the attention returns: o, or a tuple of the spec's outputs. `inputs`: captured tensors, lengths and
        params by name, also instead of those of the module, and `layout`; see `attn.torch.call`."""
        evaluator = Evaluator(self._tensor)
        own = {name: element(evaluator.value(recipe)) for name, recipe in self._recipes.items() if name not in inputs}
        given: dict[str, Any] = {**own, **inputs}
        return self.attention(q, k, v, **given)

    def _tensor(self, source: Source) -> Any:
        """A tensor of the module, in the type that is declared; others as they were captured."""
        if not isinstance(source.place, str):
            return source.value
        value = getattr(self, source.place)
        declared = self._dtypes[source.place]
        return value if value.dtype == declared else value.to(declared)

    def extra_repr(self) -> str:
        """The name of the attention and the sizes that are known."""
        sizes = [f"{dim}={size}" for dim, size in self.attention.sizes.items() if size is not None]
        return ", ".join([self.attention.name, *sizes])


def _shape(name: str, said: Input, sizes: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of a learned tensor. `sizes` by dimensions; None if they are not known."""
    known = {dim: size for dim, size in sizes.items() if isinstance(size, int)}
    try:
        return tuple(int(extent(text, known)) for text in said.dims)
    except NameError as error:
        raise ArgumentError(f"the shape of `{name}` is [{', '.join(said.dims)}], and {error.name} is not known",
                            [f"give it: attn.torch.Attention(.., {error.name}=..)"]) from None
