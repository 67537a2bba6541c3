"""Captured tensors: their names, types, and the indexes that a mod reads them with."""
from __future__ import annotations

import functools
import types
from collections import deque
from typing import Any, Callable, Iterator

from attn.tracing.expressions import BOOL, INT, REAL
from attn.tracing.names import Names, identifier
from attn.tracing.places import is_library, refusal

MOST_DIMENSIONS = 8
MOST_REACHED = 10_000  # values that are looked at for tensors
_TYPES = {
    "bool": "bool", "int8": "i8", "uint8": "u8", "int32": "i32", "int64": "i64",
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}


class Capture:
    """A tensor that a mod reads. A tensor without dimensions is declared with one, of size 1."""

    def __init__(self, name: str, value: Any):
        self.name = name
        self.value = value
        self.dtype = spec_type(value, name)
        self.shape = tuple(map(int, value.shape)) or (1,)
        self.is_scalar = len(value.shape) == 0
        self.kind = BOOL if self.dtype == "bool" else REAL if "f" in self.dtype else INT
        if len(self.shape) > MOST_DIMENSIONS:
            raise refusal(f"the captured tensor `{name}` has {len(self.shape)} dimensions, at most "
                          f"{MOST_DIMENSIONS} are possible", ["join dimensions by .reshape(..)"])

    @property
    def needs_gradient(self) -> bool:
        return bool(getattr(self.value, "requires_grad", False)) and self.kind == REAL


def spec_type(value: Any, name: str) -> str:
    spelling = str(value.dtype).removeprefix("torch.")
    if spelling in _TYPES:
        return _TYPES[spelling]
    instead = "int32" if "int" in spelling else "float32"
    raise refusal(f"the captured tensor `{name}` is of type {spelling}; possible are "
                  f"{', '.join(_TYPES)}", [f"convert it before: `{name}.to({instead})`"])


class Captures:
    """The captured tensors of a trace. Tensors are recognised by identity; names are those of the
    variables, attributes or keys through which the mod reaches them."""

    def __init__(self, names: Names):
        self._names = names
        self._wishes: dict[int, str] = {}
        self._kept: list[Any] = []  # so that no id is used again
        self._by_id: dict[int, Capture] = {}
        self._indexed: dict[int, tuple[Any, tuple[int | None, ...]]] = {}
        self._derived: dict[int, str] = {}

    def find_names(self, mod: Callable) -> None:
        for name, value in named_tensors(mod):
            if id(value) not in self._wishes:
                self._kept.append(value)
                self._wishes[id(value)] = name

    def of(self, value: Any) -> Capture:
        """The capture of a tensor or array."""
        found = self._by_id.get(id(value))
        if found is None:
            wish = self._wishes.get(id(value)) or self._derived.get(id(value), "values")
            name = self._names.unique(wish, "values")
            found = self._by_id[id(value)] = Capture(name, value)
            self._kept.append(value)
        return found

    def is_known(self, value: Any) -> bool:
        """Whether it is captured, or computed from captured tensors within the mod."""
        key = id(value)
        return key in self._wishes or key in self._by_id or key in self._derived

    def name_of(self, value: Any) -> str:
        return self._wishes.get(id(value)) or self._derived.get(id(value), "values")

    def derive(self, value: Any, source: Any) -> None:
        """`value` was computed from the captured `source` by ordinary operations within the mod."""
        self._kept.append(value)
        self._derived.setdefault(id(value), self.name_of(source))

    def note_indexed(self, value: Any, source: Any, index: Any) -> bool:
        """`value` is `source[index]`. False if there is more than constants and whole dimensions in it."""
        given = index if isinstance(index, tuple) else (index,)
        whole, indexes = self.whole(source)
        free = [axis for axis, index in enumerate(indexes) if index is None]
        if len(given) > len(free) or not all(map(_is_simple, given)):
            return False
        known = list(indexes)
        for axis, one in zip(free, given):
            known[axis] = one % whole.shape[axis] if type(one) is int else None
        self.derive(value, source)
        self._indexed[id(value)] = whole, tuple(known)
        return True

    def whole(self, value: Any) -> tuple[Any, tuple[int | None, ...]]:
        """The tensor of which `value` is a part, and the constant index of each of its dimensions."""
        return self._indexed.get(id(value), (value, (None,) * len(value.shape)))


def _is_simple(index: Any) -> bool:
    return type(index) is int or (isinstance(index, slice) and index == slice(None))


def is_tensor(value: Any) -> bool:
    """A torch tensor or a NumPy array; torch is not imported for that."""
    return any(base.__module__ in ("torch", "numpy") and base.__name__ in ("Tensor", "ndarray")
               for base in type(value).__mro__)


def is_array(value: Any) -> bool:
    return any(base.__module__ == "numpy" and base.__name__ == "ndarray" for base in type(value).__mro__)


def named_tensors(mod: Callable) -> Iterator[tuple[str, Any]]:
    """Name and value of every tensor that a function can reach, nearest first."""
    return ((name, value) for name, value, _ in everything(mod) if is_tensor(value))


def everything(mod: Callable) -> Iterator[tuple[str, Any, Any]]:
    """Name, value and referrer of what a function can reach, nearest first. The same value is there once
    for each referrer. The search is bounded: a mod may refer to a whole program."""
    seen: set[int] = set()
    queue: deque[tuple[str, Any, Any]] = deque([("", mod, None)])
    while queue and len(seen) < MOST_REACHED:
        name, value, referrer = queue.popleft()
        yield name, value, referrer
        if id(value) not in seen and not is_tensor(value):
            seen.add(id(value))
            queue.extend((inner, item, value) for inner, item in reachable(name, value))


def reachable(name: str, value: Any) -> list[tuple[str, Any]]:
    """What a function, container or object refers to, with names."""
    if isinstance(value, types.FunctionType):
        return [] if is_library(value.__code__) and not value.__closure__ else of_function(value)
    if isinstance(value, types.MethodType):
        return [(name, value.__func__), (name, value.__self__)]
    if isinstance(value, functools.partial):
        code = getattr(value.func, "__code__", None)
        parameters = code.co_varnames[:code.co_argcount] if code else ()
        given = zip((*parameters, *(name for _ in value.args)), value.args)
        return [(name, value.func), *given, *value.keywords.items()]
    if isinstance(value, (list, tuple)):
        return [(f"{name}_{i}", item) for i, item in enumerate(value)] if len(value) <= 1000 else []
    if isinstance(value, dict):
        return [(identifier(f"{name}_{key}", name), item) for key, item in value.items()]
    if isinstance(value, (type, types.ModuleType, str, bytes, int, float)) or value is None:
        return []
    return of_object(name, value)


def of_function(function: types.FunctionType) -> list[tuple[str, Any]]:
    found = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # not assigned yet
            continue
    names = global_names(function.__code__)
    found += [(name, function.__globals__[name]) for name in names if name in function.__globals__]
    code = function.__code__
    if function.__defaults__:
        positional = code.co_varnames[: code.co_argcount]
        found += zip(positional[-len(function.__defaults__):], function.__defaults__)
    found += (function.__kwdefaults__ or {}).items()
    if hasattr(function, "__wrapped__"):
        found.append((function.__name__, function.__wrapped__))
    return found


def global_names(code: types.CodeType) -> list[str]:
    """The names that a function and those within it look up, in the order of first use."""
    names = dict.fromkeys(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names.update(dict.fromkeys(global_names(const)))
    return list(names)


def of_object(owner: str, value: Any) -> list[tuple[str, Any]]:
    """Attributes and methods. A layer's `weight` has the layer's name."""
    if type(value).__module__.split(".")[0] in ("torch", "numpy") and not hasattr(value, "_parameters"):
        return []
    attributes = dict(getattr(value, "__dict__", None) or {})
    for held in ("_parameters", "_buffers", "_modules"):  # of a torch.nn.Module
        attributes.update(attributes.pop(held, None) or {})
    found = [(owner if owner and name == "weight" else name, item)
             for name, item in attributes.items() if not name.startswith("__")]
    for slot in getattr(type(value), "__slots__", ()):
        if isinstance(slot, str) and hasattr(value, slot):
            found.append((slot, getattr(value, slot)))
    found += own_methods(type(value)).items()
    return found


def own_methods(kind: type) -> dict[str, types.FunctionType]:
    """The methods that the user's classes define."""
    found: dict[str, types.FunctionType] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.split(".")[0] not in ("torch", "numpy", "builtins"):
            found.update((name, item) for name, item in vars(base).items()
                         if isinstance(item, types.FunctionType))
    return found
