"""Captured tensors: their names and types, and those that a mod computes of them."""
from __future__ import annotations

import sys
from typing import Any

from attn.tracing.expressions import BOOL, INT, REAL
from attn.tracing.names import Names
from attn.tracing.recipes import Recipe
from attn.tracing.places import refusal

MOST_DIMENSIONS = 8
_TYPES = {
    "bool": "bool", "int8": "i8", "uint8": "u8", "int32": "i32", "int64": "i64",
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}


class Capture:
    """A tensor that a spec declares. `value` is what it is at the trace, `recipe` how to find it later. A
    tensor without dimensions is declared with one, of size 1."""

    def __init__(self, name: str, value: Any, recipe: Recipe):
        self.name = name
        self.value = value
        self.recipe = recipe
        self.dtype = spec_type(value, name)
        self.shape = tuple(map(int, value.shape)) or (1,)
        self.kind = BOOL if self.dtype == "bool" else REAL if "f" in self.dtype else INT
        if len(self.shape) > MOST_DIMENSIONS:
            raise refusal(f"the captured tensor `{name}` has {len(self.shape)} dimensions, at most "
                          f"{MOST_DIMENSIONS} are possible", ["join dimensions by .reshape(..)"])

    @property
    def needs_gradient(self) -> bool:
        """Whether the captured tensor is learned: it is of reals and requires a gradient, or a program of JAX computes
        it."""
        requires = is_computed(self.value) or bool(getattr(self.value, "requires_grad", False))
        return requires and self.kind == REAL


def spelling(dtype: Any) -> str:
    """The name of one of torch's or NumPy's types: "int32"."""
    return str(dtype).removeprefix("torch.")


def is_readable(dtype: Any) -> bool:
    """Whether a spec can declare a tensor of this type."""
    return spelling(dtype) in _TYPES


def spec_type(value: Any, name: str) -> str:
    """The spec's type of a captured tensor's elements. Raises TraceError for a type that specs do not have;
    `name` is for the message."""
    if is_readable(value.dtype):
        return _TYPES[spelling(value.dtype)]
    instead = "int32" if "int" in spelling(value.dtype) else "float32"
    raise refusal(f"the captured tensor `{name}` is of type {spelling(value.dtype)}; possible are "
                  f"{', '.join(_TYPES)}", [f"convert it before: `{name}.to({instead})`"])


def type_name(dtype: Any) -> str:
    """The spec's name of a type of q, k and v, which may be one of torch's or NumPy's."""
    return dtype if isinstance(dtype, str) else _TYPES.get(spelling(dtype), spelling(dtype))


class Captures:
    """The tensors that the expressions of a trace read, one for each recipe."""

    def __init__(self, names: Names):
        self._names = names
        self._by_recipe: dict[int, Capture] = {}

    def of(self, recipe: Recipe, value: Any, wish: str) -> Capture:
        """The capture of what a recipe gives: one object for each recipe, with a unique name that is like `wish`."""
        found = self._by_recipe.get(id(recipe))
        if found is None:  # a capture keeps its recipe, so that no id is used again
            found = Capture(self._names.unique(wish, "values"), value, recipe)
            self._by_recipe[id(recipe)] = found
        return found


def is_tensor(value: Any) -> bool:
    """A torch tensor, or an array of NumPy or JAX; none of these is imported for that."""
    return is_array_of_jax(value) or any(
        base.__module__ in ("torch", "numpy") and base.__name__ in ("Tensor", "ndarray")
        for base in type(value).__mro__)


def is_array(value: Any) -> bool:
    """Whether the value is an array of NumPy or JAX, without importing them."""
    return is_array_of_jax(value) or any(
        base.__module__ == "numpy" and base.__name__ == "ndarray" for base in type(value).__mro__)


def is_array_of_jax(value: Any) -> bool:
    """Whether it is an array of JAX, also one of a program that is traced. JAX is not imported for that."""
    array = getattr(sys.modules.get("jax"), "Array", None)
    return array is not None and isinstance(value, array)


def is_computed(value: Any) -> bool:
    """Whether it is an array that a traced program of JAX computes, and may differentiate."""
    tracer = getattr(getattr(sys.modules.get("jax"), "core", None), "Tracer", None)
    return tracer is not None and isinstance(value, tracer)
