"""JAX's functions and arrays within mods. Its functions take nothing but arrays, so a mod gets stand-ins of them and of
the modules that have them: what they are called with decides whether they are traced or run. Arrays are read as
NumPy's are."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from attn.tracing.captures import is_array_of_jax
from attn.tracing.values import has_values

if TYPE_CHECKING:
    from attn.tracing.tracer import Tracer

_MODULES = ("jax", "jaxlib")

# Functions of jax.lax and jax.nn that are called otherwise than those of PyTorch and NumPy.
_NAMES = {"select": "where", "logistic": "sigmoid", "rem": "fmod", "stop_gradient": "detach", "max": "maximum",
          "min": "minimum", "integer_pow": "pow", "convert_element_type": "astype", "div": "lax_div",
          "shift_left": "left_shift", "shift_right_arithmetic": "right_shift", "not": "bitwise_not"}


def is_followed(value: Any) -> bool:
    """Whether it is a module of JAX, or a function of one."""
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in _MODULES
    if isinstance(value, type) or not callable(value) or is_array_of_jax(value):
        return False
    return str(getattr(value, "__module__", "")).partition(".")[0] in _MODULES


def _gelu(tracer: Tracer, x: Any, approximate: bool = True) -> Any:
    return tracer.call("gelu", x, approximate="tanh" if approximate else "none")


class Followed:
    """The stand-in of a module of JAX or of a function."""

    def __init__(self, tracer: Tracer, value: Any):
        self._attn = tracer, value

    def __getattr__(self, name: str) -> Any:
        tracer, value = self._attn
        found = getattr(value, name)
        return Followed(tracer, found) if is_followed(found) else found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracer, function = self._attn
        if not has_values([*args, *kwargs.values()]):
            return function(*args, **kwargs)
        name = str(getattr(function, "__name__", function))
        if name == "gelu":  # which is approximate by default here
            return _gelu(tracer, *args, **kwargs)
        return tracer.apply(function, _NAMES.get(name, name), *args, **kwargs)

    def __repr__(self) -> str:
        return repr(self._attn[1])
