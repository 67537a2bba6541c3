"""What a trace read of the user's objects, and how a later call reads it again.

A trace is a list of reads: the first of the mods, each later one of a value that was read before, "cell 0 of
value 1" or "attribute WINDOW of value 3". What a read found has a key. A mod is a deterministic program, so
if each read of another pair of mods finds what has the same key, their trace would be the same.

Keys say what a trace can depend on: constants by value, tensors by type, shape and device, functions by their
code, objects by their class, and which values are the same object as an earlier one. Of objects and
containers nothing else, because what the mod reads in them are reads of their own. Values of which it cannot
be said what a mod reads are OPAQUE: with one of them, nothing is known without a trace.
"""
from __future__ import annotations

import enum
import functools
import sys
import types
import weakref
from collections import OrderedDict
from typing import Any, Callable, Tuple

from attn.tracing.places import is_library, is_library_module


class _Name:
    """A value that stands for itself."""

    def __init__(self, name: str):
        self._name = name

    def __repr__(self) -> str:
        return self._name


MISSING = _Name("missing")  # no such attribute, item, global; a closure's variable that has no value yet
OPAQUE = _Name("opaque")


class Keys(tuple[Any, ...]):
    """The keys of a dict, in its order."""


Read = Tuple[int, Callable[[Any, Any], Any], Any]  # of, how, name: `how(value, name)` of the value `of`


def item(value: Any, name: Any) -> Any:
    """value[name], or MISSING."""
    try:
        return value[name]
    except LookupError:
        return MISSING


def length(value: Any, name: Any) -> int:
    """len(value). `name` is not used."""
    return len(value)


def has(value: Any, name: Any) -> bool:
    """Whether `name` is in the value."""
    return name in value


def keys(value: Any, name: Any) -> Keys:
    """The keys of a mapping, in order, to be compared. `name` is not used."""
    return Keys(value)


def attribute(value: Any, name: str) -> Any:
    """The attribute of this name, or MISSING."""
    return getattr(value, name, MISSING)


def of_class(value: Any, name: str) -> Any:
    """What the class of a value has by this name, not bound to the value; of a property its function."""
    found = find_in_class(type(value), name)
    return found.fget if isinstance(found, property) else found


def find_in_class(kind: type, name: str) -> Any:
    """The attribute `name` of the first class in `kind`'s method resolution order that defines it, or MISSING. It is
    read from the class's `__dict__`, so no descriptor is called."""
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def cell(function: Any, place: int) -> Any:
    """What the function's closure holds at this place; MISSING if that is not assigned yet."""
    try:
        return function.__closure__[place].cell_contents
    except ValueError:
        return MISSING


def variable(function: Any, name: str) -> Any:
    """A global variable."""
    return function.__globals__.get(name, MISSING)


def default(function: Any, place: int) -> Any:
    """The default of a parameter by place, among those that have one."""
    return function.__defaults__[place]


def keyword(function: Any, name: str) -> Any:
    """The default of a parameter that is given by name alone."""
    return function.__kwdefaults__[name]


def class_of(value: Any, name: Any) -> Any:
    """The class of the value. `name` is not used."""
    return type(value)


# --- keys

_CONSTANTS = {bool, int, str, bytes, complex, type(None), type(Ellipsis), type(NotImplemented), range, _Name}
_CONTAINERS = {list, dict, OrderedDict, types.MethodType, functools.partial, types.SimpleNamespace}


def key_of(value: Any, seen: dict[int, int], place: int) -> Any:
    """The key of what a read found, or OPAQUE. `seen` has the places of earlier values by their ids."""
    kind = type(value)
    if kind in _CONSTANTS:
        return kind, value
    if kind is float:
        return float, value if value else repr(value), value == value  # -0.0; NaN is not equal to itself
    before = seen.setdefault(id(value), place)
    if before != place:
        return "same", before
    if kind in _CONTAINERS:
        return kind
    make = _MAKERS.get(kind)
    if make is None:
        make = _maker(kind)
    return make(value)


def _of_function(function: types.FunctionType) -> Any:
    if is_library(function.__code__) and not function.__closure__:
        return "is", function
    named = function.__kwdefaults__
    return (function.__code__, len(function.__defaults__ or ()), tuple(named) if named else (),
            tuple(function.__dict__) if function.__dict__ else ())


def _of_tuple(value: tuple[Any, ...]) -> Any:
    return tuple, len(value)


def _of_set(value: Any) -> Any:
    if all(type(each) in _CONSTANTS for each in value):
        return type(value), frozenset((type(each), each) for each in value)
    return OPAQUE


def _of_keys(value: Keys) -> Any:
    if all(map(is_constant, value)):
        return Keys, tuple((type(each), each) for each in value)
    return OPAQUE


def is_constant(value: Any) -> bool:
    """Whether equal values of this type are the same to a mod, but for the sign of 0.0."""
    return type(value) in _CONSTANTS or isinstance(value, enum.Enum)


def _of_builtin(function: Any) -> Any:
    owner = getattr(function, "__self__", None)
    return ("is", function) if owner is None or isinstance(owner, (types.ModuleType, type)) else OPAQUE


def _of_module(module: types.ModuleType) -> Any:
    return ("is", module) if is_library_module(module.__name__) else types.ModuleType


def _itself(value: Any) -> Any:
    return "is", value


def _weakly(value: Any) -> Any:
    return "is", weakref.ref(value)


def _of_tensor(tensor: Any) -> Any:
    key = type(tensor), tensor.dtype, tensor.shape, tensor.requires_grad, tensor.device
    own = tensor.__dict__  # what somebody keeps with it
    if not own:
        return key
    if not all(type(value) is float or is_constant(value) for value in own.values()):
        return OPAQUE
    return *key, *((name, type(value), repr(value) if type(value) is float else value)
                   for name, value in own.items())


def _of_array(array: Any) -> Any:
    return type(array), array.dtype, array.shape


def _opaque(value: Any) -> Any:
    return OPAQUE


class Unwatched:
    """A mod that is called as it is, and of which nothing is kept: it is traced at each call."""

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError


_MAKERS: dict[type, Callable[[Any], Any]] = {
    types.FunctionType: _of_function, types.BuiltinFunctionType: _of_builtin, tuple: _of_tuple, set: _of_set,
    frozenset: _of_set, Keys: _of_keys, types.ModuleType: _of_module, type: _weakly,
}


def _maker(kind: type) -> Callable[[Any], Any]:
    """How the values of a class get their keys. Kept for library classes alone: it keeps them alive."""
    library = is_library_module(kind.__module__)
    make: Callable[[Any], Any]
    if issubclass(kind, Unwatched):
        make = _opaque
    elif kind.__module__ == "torch" and kind.__name__ == "Tensor" or (
            kind.__module__ == "torch.nn.parameter" and kind.__name__ in ("Parameter", "Buffer")):
        make = _of_tensor
    elif kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        make = _of_array
    elif library and _is_by_value(kind):
        make = _itself
    elif issubclass(kind, enum.Enum) or issubclass(kind, type):
        return _weakly
    elif issubclass(kind, tuple) and hasattr(kind, "_fields") and kind.__new__ is not tuple.__new__:
        return lambda value: (weakref.ref(kind), len(value))
    elif is_plain(kind):
        return lambda value: weakref.ref(kind)
    else:
        return _opaque
    _MAKERS[kind] = make
    return make


def _is_by_value(kind: type) -> bool:
    if kind.__module__ == "torch":
        return kind.__name__ in ("dtype", "device", "layout", "memory_format", "Size")
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, (numpy.generic, numpy.dtype, numpy.ufunc)):
        return True
    return kind.__module__ == "torch._ops"


def is_plain(kind: type) -> bool:
    """Whether objects of the class are attributes and methods, and nothing else: not containers, numbers or
    tensors in other clothes, and not of a class whose attributes are read by code."""
    return find_in_class(kind, "__getattribute__") is object.__getattribute__ and all(map(_is_of_python, kind.__mro__))


_HEAP, _IMMUTABLE = 1 << 9, 1 << 8  # Py_TPFLAGS_HEAPTYPE, of class statements too, and _IMMUTABLETYPE
_WORD = 8


def _is_of_python(kind: type) -> bool:
    """Whether a class statement made it, so that its objects have no state but attributes."""
    if kind is object:
        return True
    if not kind.__flags__ & _HEAP or kind.__flags__ & _IMMUTABLE:
        return False
    members = sum(type(each) is types.MemberDescriptorType for each in vars(kind).values())
    own = kind.__basicsize__ - (kind.__base__ or object).__basicsize__
    return own <= (members + 2) * _WORD  # with pointers to a dict and weak references
