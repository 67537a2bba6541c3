"""A copy of a mod in which NumPy arrays can be indexed by traced values.

NumPy does not ask an index what it is, so an array that a mod captures is replaced by a stand-in: in the
closure, in globals, in defaults, in containers, in attributes, and in the functions that these refer to.
`torch.autograd.Function`s are replaced by their forward, because they accept only tensors. What refers to
neither is left as it is.
"""
from __future__ import annotations

import copy
import functools
import types
from typing import Any, Callable

from attn.tracing.captures import everything, global_names, is_array, own_methods


def rebuilt(mod: Callable, stand_in: Callable[[Any], Any]) -> Callable:
    """`mod`, with `stand_in(array)` in place of each array."""
    return _Rebuilder(mod, stand_in).value(mod)


class _Context:
    """What a torch.autograd.Function writes to in its forward."""

    def save_for_backward(self, *values: Any) -> None:
        """Gradients follow from the forward's expression."""


def _is_autograd_function(value: Any) -> bool:
    return isinstance(value, type) and any(
        base.__module__ == "torch.autograd.function" and base.__name__ == "Function"
        for base in value.__mro__)


def _forward(function: Any) -> Callable:
    separate = any("setup_context" in base.__dict__ for base in function.__mro__
                   if not base.__module__.startswith("torch."))
    return function.forward if separate else functools.partial(function.forward, _Context())


def _is_replaced(value: Any) -> bool:
    if is_array(value) or _is_autograd_function(value):
        return True
    owner = getattr(value, "__self__", None)
    return _is_autograd_function(owner) and getattr(value, "__name__", "") == "apply"


class _Rebuilder:
    def __init__(self, mod: Callable, stand_in: Callable[[Any], Any]):
        self._stand_in = stand_in
        self._done: dict[int, Any] = {}
        self._reached = list(everything(mod))  # keeps them, so that no id is used again
        self._changed = self._changed_values()

    def _changed_values(self) -> set[int]:
        """What is replaced, and all from which that can be reached."""
        referrers: dict[int, list[Any]] = {}
        for _, value, referrer in self._reached:
            referrers.setdefault(id(value), []).append(referrer)
        changed: set[int] = set()
        stack = [value for _, value, _ in self._reached if _is_replaced(value)]
        while stack:
            value = stack.pop()
            if id(value) not in changed:
                changed.add(id(value))
                stack.extend(one for one in referrers.get(id(value), ()) if one is not None)
        return changed

    def value(self, value: Any) -> Any:
        if id(value) not in self._changed:
            return value
        if id(value) not in self._done:
            self._done[id(value)] = self._copy(value)
        return self._done[id(value)]

    def _copy(self, value: Any) -> Any:
        if is_array(value):
            return self._stand_in(value)
        if _is_autograd_function(value):
            return types.SimpleNamespace(apply=_forward(value))
        if _is_replaced(value):
            return _forward(value.__self__)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return types.MethodType(self.value(value.__func__), self.value(value.__self__))
        if isinstance(value, functools.partial):
            keywords = {name: self.value(item) for name, item in value.keywords.items()}
            return functools.partial(self.value(value.func), *map(self.value, value.args), **keywords)
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.value, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.value, value))
        return self._object(value)

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        names = [name for name in global_names(function.__code__) if name in function.__globals__]
        scope = dict(function.__globals__)
        new = types.FunctionType(function.__code__, scope, function.__name__, None, cells or None)
        self._done[id(function)] = new  # it may refer to itself
        for cell, old in zip(cells, function.__closure__ or ()):
            try:
                cell.cell_contents = self.value(old.cell_contents)
            except ValueError:  # not assigned yet
                continue
        scope.update({name: self.value(scope[name]) for name in names})
        if function.__defaults__:
            new.__defaults__ = tuple(map(self.value, function.__defaults__))
        if function.__kwdefaults__:
            new.__kwdefaults__ = {key: self.value(item) for key, item in function.__kwdefaults__.items()}
        return new

    def _object(self, value: Any) -> Any:
        new = copy.copy(value)
        self._done[id(value)] = new
        for name, item in list(getattr(value, "__dict__", {}).items()):
            new.__dict__[name] = self.value(item)
        kind = type(value)
        methods = {name: self.value(item) for name, item in own_methods(kind).items()
                   if id(item) in self._changed}
        if methods:
            new.__class__ = type(kind.__name__, (kind,), methods)
        return new
