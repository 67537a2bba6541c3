"""What mods mean: keys that are equal for functions that trace to the same spec."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from attn.tracing.captures import global_names, is_array
from attn.tracing.places import is_library

_CONSTANTS = (bool, int, str, bytes, complex)


def meaning_of(*mods: Any) -> tuple[Hashable, list[Any]]:
    """A key, and the tensors and arrays that the mods capture, in a fixed order.

    Keys are equal if the same code reads equal values: constants, containers and attributes by value,
    tensors by dtype, shape and whether they require a gradient, and everything else by identity. A key keeps
    alive what it compares by identity.
    """
    reader = _Reader()
    return tuple(reader.read(mod, ()) for mod in mods), reader.captured


class _Same:
    """Equal for the same object only, which it keeps alive."""

    def __init__(self, value: Any):
        self._value = value

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


class _Reader:
    def __init__(self) -> None:
        self.captured: list[Any] = []
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no id is used again

    def read(self, value: Any, names: Iterable[str]) -> Hashable:
        """`names`: those that the code around looks up, among them the attributes it reads."""
        if isinstance(value, torch.Tensor) or is_array(value):
            return self._tensor(value)
        if value is None or isinstance(value, _CONSTANTS):
            return (type(value), value)
        if isinstance(value, float):
            return (float, repr(value))  # -0.0 and nan too
        if id(value) in self._seen:
            return ("seen", self._seen[id(value)])
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        if isinstance(value, (tuple, list)):
            return (type(value), *(self.read(each, names) for each in value))
        if isinstance(value, dict):
            return (dict, *((key, self.read(each, names)) for key, each in value.items()))
        if isinstance(value, (set, frozenset)):
            return (set, frozenset(value))
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return (self.read(value.__func__, names), self.read(value.__self__, _names_in(value.__func__)))
        if isinstance(value, functools.partial):
            return tuple(self.read(each, names) for each in (value.func, value.args, value.keywords))
        if isinstance(value, BuiltinMethodType) and not isinstance(value.__self__, (ModuleType, type(None))):
            return (value.__name__, self.read(value.__self__, names))  # bound at each use
        return self._object(value, names)

    def _tensor(self, value: Any) -> Hashable:
        self.captured.append(value)
        return ("tensor", str(value.dtype), tuple(value.shape), getattr(value, "requires_grad", False))

    def _function(self, function: FunctionType) -> Hashable:
        names = global_names(function.__code__)
        cells = tuple(self._cell(cell, names) for cell in function.__closure__ or ())
        defaults = self.read(function.__defaults__, names)
        named = self.read(function.__kwdefaults__, names)
        known = [] if is_library(function.__code__) else [n for n in names if n in function.__globals__]
        values = tuple((name, self.read(function.__globals__[name], names)) for name in known)
        return (function.__code__, cells, defaults, named, values)

    def _cell(self, cell: Any, names: Iterable[str]) -> Hashable:
        try:
            return self.read(cell.cell_contents, names)
        except ValueError:  # not assigned yet
            return "empty"

    def _object(self, value: Any, names: Iterable[str]) -> Hashable:
        """Its identity, and its attributes, which the code may read and somebody may change."""
        attributes: dict[str, Any] = {}
        if not isinstance(value, (ModuleType, type)):
            names = [*names, *_names_in(_call_of(value))]
            attributes.update(getattr(value, "__dict__", {}))
        for name in names:
            if name not in attributes and (found := _attribute(value, name)) is not None:
                attributes[name] = found
        return (_Same(value), *((name, self.read(each, names)) for name, each in attributes.items()))


def _call_of(value: Any) -> Any:
    """The function that runs if an object is called."""
    return getattr(type(value), "forward" if isinstance(value, torch.nn.Module) else "__call__", None)


def _names_in(function: Any) -> list[str]:
    code = getattr(function, "__code__", None)
    return global_names(code) if isinstance(code, CodeType) and not is_library(code) else []


def _attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # of a property: the trace says it, if the mod reads it
        return None
