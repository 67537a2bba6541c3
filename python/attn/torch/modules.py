"""An attention as a layer of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from attn.arguments import extent
from attn.attention import compile as compile_attention
from attn.errors import ArgumentError
from attn.specs import Input
from attn.torch.signature import TORCH_DTYPES
from attn.tracing.captures import is_tensor
from attn.tracing.recipes import Captured, Recipe, Source


class Attention(torch.nn.Module):
    """A compiled attention whose learned tensors are parameters of the module, by their names in the spec.

    `spec`, `score_mod`, `mask_mod` and `options` are those of `attn.compile`: sizes, `layout`, `engine`, ..
    Learned tensors are zeros, of the spec's shapes and types, for which the sizes that they name must be given;
    `learned` has others by name, whose elements are copied. Of mods, the tensors that they capture
    are those of the module: parameters and buffers that are not saved, which move with it; what they compute of them
    is computed in each call. `device`: of the parameters that are made.

    Raises ArgumentError for a size that is missing or an unknown name, and what `attn.compile` raises. As thread-safe
    as any module.
    """

    def __init__(self, spec: Any = None, *, score_mod: Callable[..., Any] | None = None,
                 mask_mod: Callable[..., Any] | None = None, learned: Mapping[str, torch.Tensor] | None = None,
                 device: torch.device | str | None = None, **options: Any):
        super().__init__()
        self.attention = compile_attention(spec, score_mod=score_mod, mask_mod=mask_mod, **options)
        said = self.attention.described
        given = dict(learned or {})
        for name in given:
            if name not in said.learned:
                raise ArgumentError(f"learned: `{said.name}` learns no tensor `{name}`",
                                    [f"it learns {', '.join(said.learned) or 'none'}"])
        captured = self.attention.captured
        recipes = captured.recipes if isinstance(captured, Captured) else {}
        self._named = self._take(recipes)
        for name in said.learned:
            if name not in recipes:
                made = torch.zeros(_shape(name, said.inputs[name], said.sizes),
                                   dtype=TORCH_DTYPES[said.inputs[name].dtype], device=device)
                self.register_parameter(name, torch.nn.Parameter(made))
                self._named = (*self._named, name)
        with torch.no_grad():
            for name, value in given.items():
                self.get_parameter(name).copy_(value)

    def _take(self, recipes: Mapping[str, Recipe]) -> tuple[str, ...]:
        """Registers the tensors that mods capture as they are. Returns their names."""
        taken = [name for name, recipe in recipes.items()
                 if isinstance(recipe, Source) and is_tensor(recipe.value) and isinstance(recipe.value, torch.Tensor)]
        for name in taken:
            value = recipes[name].value
            if isinstance(value, torch.nn.Parameter):
                self.register_parameter(name, value)
            else:
                self.register_buffer(name, value, persistent=False)
        return tuple(taken)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **inputs: Any) -> Any:
        """What the attention returns: o, or a tuple of the spec's outputs. `inputs`: captured tensors, lengths and
        params by name, also instead of those of the module, and `layout`; see `attn.torch.call`."""
        own = {name: getattr(self, name) for name in self._named if name not in inputs}
        for name, value in own.items():
            if value.dim() == 0:
                own[name] = value.reshape(1)
        return self.attention(q, k, v, **own, **inputs)

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
