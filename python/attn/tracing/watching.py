"""A copy of a mod that tells what it reads.

What a mod refers to is handed to it as stand-ins, each made when it is read: functions with the same code,
whose variables are read through a Watch; lists and dicts that report their items; and for modules, classes
and objects a `_StandIn`, whose attributes and methods are read through the Watch too. NumPy arrays become
values that can be indexed by traced ones, `torch.autograd.Function`s their forward, because they accept only
tensors. Constants, tensors and what libraries have are handed over as they are.

Whatever a mod does that is not reported makes the trace opaque: `Watch.opaque` says why. Such a trace is as
good as any other, but nobody can know whether another would be the same.
"""
from __future__ import annotations

import contextlib
import dis
import enum
import functools
import operator
import sys
import types
from collections import OrderedDict
from typing import Any, Callable, Iterator

from attn.tracing import reads
from attn.tracing.functions import random_error
from attn.tracing.places import is_library, is_library_module, is_pure, is_standard
from attn.tracing.reads import MISSING, OPAQUE, Read


class Watch:
    """The reads of one trace, in their order: `steps` has each with the key of what it found.

    `on_array` makes the stand-in of a NumPy array; `on_tensor` is told of each tensor. Both get its name, the
    variable, attribute or key through which the mod reaches it, and its place among what was read.
    """

    def __init__(self, mods: tuple[Any, ...], on_tensor: Callable[[Any, str, int], Any],
                 on_array: Callable[[Any, str, int], Any]):
        self.mods = mods
        self.steps: list[tuple[Read, Any]] = []
        self.opaque: str | None = None
        self.values: list[Any] = [mods]
        self._on_tensor, self._on_array = on_tensor, on_array
        self._places: dict[int, int] = {}
        self._done: dict[Read, Any] = {}
        self._stand_ins: dict[int, Any] = {}
        self._wishes: dict[int, str] = {}
        self._is_paused = False

    def mod(self, place: int) -> Any:
        """The mod at this place of the traced arguments, as what is traced in its stead."""
        return self.read(0, reads.item, place, "")

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """While torch does what the mod did not ask for, such as to import its own parts."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def forget(self, place: int) -> None:
        """What was read of a value may have changed."""
        self._done = {read: found for read, found in self._done.items() if read[0] != place}

    def is_opaque(self, reason: str) -> None:
        """Notes that what the mod reads cannot be compared, and the first reason: it is traced at each call."""
        self.opaque = self.opaque or reason

    def read(self, of: int, how: Callable[[Any, Any], Any], name: Any, wish: str) -> Any:
        """The stand-in of what a read finds. Names of tensors are made from `wish`."""
        read = (of, how, name)
        if read not in self._done:
            value, place = how(self.values[of], name), len(self.values)
            with _outside_of_modes():
                key = reads.key_of(value, self._places, place)
            self.values.append(value)
            self.steps.append((read, key))
            self._done[read] = self._stand_in(value, key, place, wish)
        return self._done[read]

    def _stand_in(self, value: Any, key: Any, place: int, wish: str) -> Any:
        if type(key) is tuple and key[0] == "same":
            return self._stand_ins[key[1]]
        if key is OPAQUE:
            self.is_opaque(f"it reads `{wish}`, a {type(value).__name__}")
        self._stand_ins[place], self._wishes[place] = value, wish
        self._stand_ins[place] = self._new_stand_in(value, key, place, wish)
        return self._stand_ins[place]

    def _new_stand_in(self, value: Any, key: Any, place: int, wish: str) -> Any:
        kind = type(value)
        if kind is reads.Keys:
            return value
        if _has_base(kind, "torch", "Tensor"):
            with _outside_of_modes():
                self._on_tensor(value, wish, place)
        elif _has_base(kind, "numpy", "ndarray"):
            return self._on_array(value, wish, place)
        elif isinstance(value, (type, types.ModuleType)):
            if isinstance(value, type) and issubclass(value, BaseException) and not is_builtin(value):
                self.is_opaque(f"it reads `{wish}`, an exception")
                return value
            return _StandIn(self, place, value) if _is_watched(value) else value
        elif key is OPAQUE or (type(key) is tuple and key[0] == "is"):
            return value
        elif isinstance(value, tuple):
            items = (self.read(place, reads.item, i, f"{wish}_{i}") for i in range(len(value)))
            return tuple(items) if kind is tuple else kind._make(items)
        elif kind in _BY_TYPE:
            return _BY_TYPE[kind](self, value, place, wish)
        elif kind is types.SimpleNamespace or not reads.is_constant(value) and reads.is_plain(kind):
            return _StandIn(self, place, value)
        elif not reads.is_constant(value) and kind not in (float, set, frozenset):
            self.is_opaque(f"it reads `{wish}`, a {kind.__name__}")
        return value

    # --- functions

    def function(self, function: types.FunctionType, place: int, wish: str) -> Any:
        """A copy of the function whose globals, closure and defaults are watched; the function itself, as
        opaque, if it has side effects."""
        code, cells = function.__code__, tuple(types.CellType() for _ in function.__closure__ or ())
        reason = _side_effect(code)
        if reason:
            self.is_opaque(reason)
            return function
        new = types.FunctionType(code, _Scope(self, place, function.__globals__), function.__name__, None,
                                 cells or None)
        self._stand_ins[place] = new  # it may refer to itself
        for i, name in enumerate(code.co_freevars):
            found = self.read(place, reads.cell, i, name)
            if found is not MISSING:
                cells[i].cell_contents = real(found) if name == "__class__" else found
        count = len(function.__defaults__ or ())
        names = code.co_varnames[code.co_argcount - count:code.co_argcount]
        new.__defaults__ = tuple(self.read(place, reads.default, i, name) for i, name in enumerate(names))
        new.__kwdefaults__ = {name: self.read(place, reads.keyword, name, name)
                              for name in function.__kwdefaults__ or ()}
        for name in function.__dict__:
            setattr(new, name, self.read(place, reads.attribute, name, name))
        return new

    def method(self, method: types.MethodType, place: int, wish: str) -> Any:
        """A method whose function and owner are watched."""
        owner = method.__self__
        if isinstance(owner, type) and is_autograd_function(owner) and method.__name__ == "apply":
            return self._forward(self.read(place, reads.attribute, "__self__", wish), wish)
        function = self.read(place, reads.attribute, "__func__", wish)
        return types.MethodType(function, self.read(place, reads.attribute, "__self__", wish))

    def partial(self, partial: functools.partial, place: int, wish: str) -> Any:
        """A functools.partial whose function and arguments are watched."""
        function = self.read(place, reads.attribute, "func", wish)
        args = self.read(place, reads.attribute, "args", wish)
        code = getattr(function, "__code__", None)
        if code is not None:  # names of the parameters are better ones
            args = tuple(self.read(self._places[id(partial.args)], reads.item, i, name)
                         for i, name in zip(range(len(args)), (*code.co_varnames, *("",) * len(args))))
        return functools.partial(function, *args, **self.read(place, reads.attribute, "keywords", wish))

    # --- attributes and methods of what a _StandIn is for

    def get(self, place: int, value: Any, name: str) -> Any:
        """An attribute."""
        if name in ("__class__", "__dict__"):
            self.is_opaque(f"it reads `{name}` of a {type(value).__name__}")
            return getattr(value, name)
        if isinstance(value, types.ModuleType):
            return self._of_module(value, place, name)
        found = self._of_class(value, place, name) if isinstance(value, type) else self._of_object(
            value, place, name)
        if found is MISSING:
            raise AttributeError(f"'{type(value).__name__}' object has no attribute '{name}'")
        return found

    def _of_module(self, module: types.ModuleType, place: int, name: str) -> Any:
        if name in vars(module) and type(module) is types.ModuleType:
            if is_library_module(module.__name__):
                return self._of_library(module, name)
            return self.read(place, reads.attribute, name, name)
        self.is_opaque(f"`{module.__name__}.{name}` is not a variable of the module")
        return getattr(module, name)

    def _of_library(self, module: types.ModuleType, name: str) -> Any:
        """What a library has by a name does not change."""
        if module.__name__ in ("numpy.random", "torch.random"):
            raise random_error()
        value = vars(module)[name]
        return _StandIn(self, _NOWHERE, value) if type(value) is types.ModuleType else value

    def _of_class(self, kind: type, place: int, name: str) -> Any:
        if name == "apply" and is_autograd_function(kind):
            return self._forward(self._stand_ins[place], name)
        static = reads.find_in_class(kind, name)
        if isinstance(kind, enum.EnumMeta) and name in kind.__members__:
            return self.read(place, reads.attribute, name, name)
        by_metaclass = type(kind) is not type and reads.find_in_class(type(kind), name) is not MISSING
        known = static is not MISSING and _is_simple_descriptor(static) and is_plain_metaclass(type(kind))
        if by_metaclass or not known:
            self.is_opaque(f"`{name}` of the class `{kind.__name__}` is found by code")
        return self.read(place, reads.attribute, name, name)

    def _forward(self, function: Any, wish: str) -> Any:
        """What the class of a torch.autograd.Function computes: gradients follow from its expression."""
        separate = any("setup_context" in base.__dict__ for base in real(function).__mro__
                       if not base.__module__.startswith("torch."))
        return function.forward if separate else functools.partial(function.forward, _Context())

    def _of_object(self, value: Any, place: int, name: str) -> Any:
        kind = type(value)
        static = reads.find_in_class(kind, name)
        if type(static) is property and static.fget is not None:
            return self.read(place, reads.of_class, name, name)(self._stand_ins[place])
        own = name in getattr(value, "__dict__", ())
        if static is MISSING:
            search = reads.find_in_class(kind, "__getattr__")
            known = search is MISSING or is_library(getattr(search, "__code__", _NO_CODE))
        else:
            known = _is_simple_descriptor(static)
        if not own and not known:
            self.is_opaque(f"`{name}` of a {kind.__name__} is found by code")
        inner = ("weight", "_modules", "_parameters", "_buffers")  # a layer's have the layer's name
        wish = self._wishes.get(place) if name in inner else None
        return self.read(place, reads.attribute, name, wish or name)

    def set(self, place: int, name: str, value: Any) -> None:
        """Sets an attribute of a watched object, which makes the mod opaque."""
        self.is_opaque(f"it writes to `{name}`")
        setattr(self.values[place], name, real(value))
        self.forget(place)

    def call(self, this: _StandIn, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A special method, such as `__call__`."""
        _, place, value = _inside(this)
        found = reads.find_in_class(type(value), name)
        if name == "__call__" and _has_base(type(value), "torch.nn.modules.module", "Module"):
            return self._forward_of(value, place)(*args, **kwargs)
        if type(found) is types.FunctionType:
            return self.read(place, reads.of_class, name, name)(this, *args, **kwargs)
        if found is MISSING or found is getattr(object, name, None):
            return self._without_method(this, name, args)
        self.is_opaque(f"it calls `{name}` of a {type(value).__name__}")
        return found.__get__(value)(*map(real, args), **{key: real(each) for key, each in kwargs.items()})

    def _forward_of(self, module: Any, place: int) -> Any:
        for hooks in ("_forward_hooks", "_forward_pre_hooks"):
            if len(self.get(place, module, hooks)):
                self.is_opaque(f"a {type(module).__name__} has hooks")
                return module
        return self.get(place, module, "forward")

    def _without_method(self, this: _StandIn, name: str, args: tuple[Any, ...]) -> Any:
        value = real(this)
        if name == "__eq__":
            return True if real(args[0]) is value else NotImplemented
        if name == "__ne__":
            return False if real(args[0]) is value else NotImplemented
        if name == "__hash__":
            return hash(value)
        if name == "__bool__":
            lengths = reads.find_in_class(type(value), "__len__")
            return True if lengths is MISSING else bool(self.call(this, "__len__", (), {}))
        if name in _OPERATORS:
            return NotImplemented
        if name in _TEXTS:
            self.is_opaque(f"it writes a {type(value).__name__} as text")
            return _TEXTS[name](value, *args)
        raise TypeError(f"'{type(value).__name__}' object has no `{name}`")

    # --- Python's own functions

    def builtin(self, name: str) -> Any:
        """The function of Python that a mod means by a name. Raises KeyError for those that need no care."""
        if name in _CAREFUL:
            return functools.partial(_CAREFUL[name], self)
        if name not in _PURE_BUILTINS:
            self.is_opaque(f"it uses Python's `{name}`")
        raise KeyError(name)

    # --- what runs

    def calls(self, frame: types.FrameType) -> None:
        """A frame of Python begins."""
        code, caller = frame.f_code, frame.f_back
        if self._is_paused or type(frame.f_globals) is _Scope:
            return
        if not is_library(code) and not is_standard(code) and not _is_generated(frame):
            self.is_opaque(f"it runs `{code.co_name}`, which is not watched")
        elif caller is not None and type(caller.f_globals) is _Scope and not is_pure(code):
            self.is_opaque(f"it calls `{code.co_name}` of a library")

    def calls_builtin(self, frame: types.FrameType, function: Any) -> None:
        """A function that is not Python's is called."""
        if type(frame.f_globals) is _Scope and not _is_pure_builtin(function):
            self.is_opaque(f"it calls `{getattr(function, '__name__', function)}`")


_NOWHERE = -1  # the place of a library's module that is reached through another


def _is_generated(frame: types.FrameType) -> bool:
    """Whether it is code of collections.namedtuple, or of a dataclass of a library."""
    module = str(frame.f_globals.get("__name__"))
    return frame.f_code.co_filename == "<string>" and (
        module.startswith("namedtuple_") or is_library_module(module))


def _has_base(kind: type, module: str, name: str) -> bool:
    return any(base.__name__ == name and base.__module__ == module for base in kind.__mro__)


def _outside_of_modes() -> Any:
    torch = sys.modules.get("torch")
    return contextlib.nullcontext() if torch is None else torch._C.DisableTorchFunction()


def _is_watched(value: Any) -> bool:
    """Whether a class or a module is not only of a library; of those, modules may have others."""
    if isinstance(value, types.ModuleType):
        return type(value) is types.ModuleType
    return not is_library_module(value.__module__)


def is_builtin(kind: type) -> bool:
    """Whether the class is of Python or of a library, not of the user."""
    return is_library_module(kind.__module__)


class _Context:
    """What a torch.autograd.Function writes to in its forward."""

    def save_for_backward(self, *values: Any) -> None:
        """Gradients follow from the forward's expression."""


def is_autograd_function(kind: type) -> bool:
    """Whether the class is a torch.autograd.Function, without importing PyTorch."""
    return _has_base(kind, "torch.autograd.function", "Function")


def is_plain_metaclass(kind: type) -> bool:
    """Whether attributes of a class of this metaclass are found as those of any class."""
    return kind.__getattribute__ is type.__getattribute__ and reads.find_in_class(
        kind, "__getattr__") is MISSING


_NO_CODE = (lambda: None).__code__
_SIMPLE = (types.FunctionType, classmethod, staticmethod, property, types.MemberDescriptorType,
           types.GetSetDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType)


def _is_simple_descriptor(value: Any) -> bool:
    return isinstance(value, _SIMPLE) or not hasattr(type(value), "__get__")


@functools.lru_cache(maxsize=1024)
def _side_effect(code: types.CodeType, captured: tuple[str, ...] | None = None) -> str | None:
    """What a function does besides computing, if anything."""
    captured = code.co_freevars if captured is None else captured
    for step in dis.get_instructions(code):
        if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
                step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in captured):
            return f"it assigns to `{step.argval}`"
        if step.opname == "IMPORT_NAME" and not is_library_module(step.argval):
            return f"it imports `{step.argval}`"
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    found = (_side_effect(each, tuple({*captured} & {*each.co_freevars})) for each in inner)
    return next(filter(None, found), None)


class _Scope(dict):
    """The global variables of a function. Python asks `__getitem__`, since this is not exactly a dict."""

    def __init__(self, watch: Watch, place: int, variables: dict[str, Any]):
        kept = ("__name__", "__builtins__")  # which Python does not ask for
        super().__init__({name: variables[name] for name in kept if name in variables})
        self._watch, self._place, self._variables = watch, place, variables

    def __getitem__(self, name: str) -> Any:
        found = self._watch.read(self._place, reads.variable, name, name)
        if found is MISSING:
            if name in ("globals", "locals", "vars", "eval", "exec"):
                self.update(self._variables)
            return self._watch.builtin(name)
        return found


# --- containers


class _List(list):
    def __init__(self, watch: Watch, value: list, place: int, wish: str):
        super().__init__(value)
        self._attn = watch, place, wish

    def _item(self, index: int) -> Any:
        watch, place, wish = self._attn
        return watch.read(place, reads.item, index, f"{wish}_{index}")

    def __len__(self) -> int:
        watch, place, wish = self._attn
        return watch.read(place, reads.length, None, wish)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._item(i) for i in range(*index.indices(len(self)))]
        found = self._item(operator.index(index))
        if found is MISSING:
            raise IndexError("list index out of range")
        return found

    def __iter__(self) -> Any:
        return (self._item(i) for i in range(len(self)))

    def __reversed__(self) -> Any:
        return (self._item(i) for i in reversed(range(len(self))))

    def __contains__(self, value: Any) -> bool:
        return any(each is value or each == value for each in self)

    def __add__(self, other: Any) -> Any:
        return [*self, *other]

    def __radd__(self, other: Any) -> Any:
        return [*other, *self]

    def __mul__(self, count: Any) -> Any:
        return [*self] * count

    __rmul__ = __mul__

    def copy(self) -> list:
        return [*self]

    def index(self, *args: Any) -> int:
        return [*self].index(*args)

    def count(self, value: Any) -> int:
        return [*self].count(value)

    def __lt__(self, other: Any) -> bool:
        return [*self] < [*other]

    def __le__(self, other: Any) -> bool:
        return [*self] <= [*other]

    def __gt__(self, other: Any) -> bool:
        return [*self] > [*other]

    def __ge__(self, other: Any) -> bool:
        return [*self] >= [*other]

    def __repr__(self) -> str:
        return repr([*self])

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, list) and [*self] == [*other]

    def __ne__(self, other: Any) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]


class _Dict(dict):
    def __init__(self, watch: Watch, value: dict, place: int, wish: str):
        super().__init__(value)
        self._attn = watch, place, wish

    def _item(self, key: Any) -> Any:
        watch, place, wish = self._attn
        if not reads.is_constant(key):
            watch.is_opaque(f"a key of `{wish}` is a {type(key).__name__}")
            return super().get(real(key), MISSING)
        return watch.read(place, reads.item, key, f"{wish}_{key}")

    def __getitem__(self, key: Any) -> Any:
        found = self._item(key)
        if found is MISSING:
            raise KeyError(key)
        return found

    def get(self, key: Any, default: Any = None) -> Any:
        found = self._item(key)
        return default if found is MISSING else found

    def __contains__(self, key: Any) -> bool:
        watch, place, wish = self._attn
        if reads.is_constant(key):
            return watch.read(place, reads.has, key, wish)
        return self._item(key) is not MISSING

    def __len__(self) -> int:
        watch, place, wish = self._attn
        return watch.read(place, reads.length, None, wish)

    def __iter__(self) -> Any:
        watch, place, wish = self._attn
        return iter(watch.read(place, reads.keys, None, wish))

    def keys(self) -> Any:
        return dict.fromkeys(self).keys()

    def values(self) -> Any:
        return {key: self[key] for key in self}.values()

    def items(self) -> Any:
        return {key: self[key] for key in self}.items()

    def copy(self) -> dict:
        return {key: self[key] for key in self}

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, dict) and self.copy() == {**other}

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __reversed__(self) -> Any:
        return reversed(tuple(self))

    def __repr__(self) -> str:
        return repr(self.copy())

    __hash__ = None  # type: ignore[assignment]


_List.__name__, _Dict.__name__ = "list", "dict"  # in messages


def _writing(kind: type, name: str) -> Callable:
    """A method that changes a container: the user's too, and nothing is known of it afterwards."""
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch, place, wish = self._attn
        watch.is_opaque(f"it changes `{wish}`")
        watch.forget(place)
        getattr(kind, name)(watch.values[place], *map(real, args), **kwargs)
        found = getattr(kind, name)(self, *args, **kwargs)
        return self if name.startswith("__i") else found

    return method


for _name in ("append extend insert pop remove clear sort reverse __setitem__ __delitem__ __iadd__ "
              "__imul__").split():
    setattr(_List, _name, _writing(list, _name))
for _name in "pop popitem clear update setdefault __setitem__ __delitem__ __ior__".split():
    setattr(_Dict, _name, _writing(dict, _name))


# --- modules, classes and objects


class _StandIn:
    """Stands for a module, class or object of the user."""

    __slots__ = ("_attn",)

    def __init__(self, watch: Watch, place: int, value: Any):
        object.__setattr__(self, "_attn", (watch, place, value))

    def __getattribute__(self, name: str) -> Any:
        watch, place, value = _inside(self)
        return watch.get(place, value, name)

    def __setattr__(self, name: str, value: Any) -> None:
        watch, place, _ = _inside(self)
        watch.set(place, name, value)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(real(value), real(self))

    def __subclasscheck__(self, value: Any) -> bool:
        return issubclass(real(value), real(self))


_inside = _StandIn.__dict__["_attn"].__get__


def real(value: Any) -> Any:
    """What a stand-in is for, and anything else as it is."""
    return _inside(value)[2] if type(value) is _StandIn else value


_TEXTS = {"__repr__": repr, "__str__": str, "__format__": format}
_OPERATORS = frozenset(
    f"__{side}{name}__" for side in ("", "r") for name in
    "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()) | {
        "__lt__", "__le__", "__gt__", "__ge__"}


def _special(name: str) -> Callable:
    def method(self: _StandIn, *args: Any, **kwargs: Any) -> Any:
        watch, _, value = _inside(self)
        if name == "__call__" and isinstance(value, type):
            watch.is_opaque(f"it makes a {value.__name__}")
            return value(*args, **kwargs)
        return watch.call(self, name, args, kwargs)

    return method


for _name in ("__call__", "__getitem__", "__setitem__", "__len__", "__iter__", "__contains__", "__bool__",
              "__eq__", "__ne__", "__hash__", "__neg__", "__invert__", "__abs__", "__float__", "__int__",
              "__index__", "__repr__", "__str__", "__format__", "__enter__", "__exit__", "__reversed__",
              *sorted(_OPERATORS)):
    setattr(_StandIn, _name, _special(_name))

_BY_TYPE: dict[type, Callable[..., Any]] = {
    list: _List, dict: _Dict, OrderedDict: _Dict, types.FunctionType: Watch.function,
    types.MethodType: Watch.method, functools.partial: Watch.partial,
}


# --- Python's functions


def _type(watch: Watch, *args: Any) -> Any:
    if len(args) != 1:
        watch.is_opaque("it makes a class")
        return type(*args)
    value = args[0]
    if type(value) is _StandIn:
        _, place, _ = _inside(value)
        return watch.read(place, reads.class_of, None, "")
    return {_List: list, _Dict: dict}.get(type(value), type(value))


def _isinstance(watch: Watch, value: Any, kinds: Any) -> bool:
    return isinstance(real(value), tuple(map(real, kinds)) if type(kinds) is tuple else real(kinds))


def _callable(watch: Watch, value: Any) -> bool:
    return callable(real(value))


_CAREFUL = {"isinstance": _isinstance, "callable": _callable, "type": _type}
_PURE_BUILTINS = frozenset(
    "abs all any bool bytes complex dict divmod enumerate filter float frozenset getattr hasattr int iter "
    "len list map max min next pow print range repr reversed round set slice sorted str sum tuple zip "
    "isinstance issubclass callable type object format ord chr bin hex NotImplemented Ellipsis "
    "__build_class__ property staticmethod classmethod __name__ __debug__".split()) | {
        name for name in dir(__import__("builtins")) if name.endswith(("Error", "Exception", "Warning"))}


def _is_pure_builtin(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, types.ModuleType):
        if owner.__name__ == "builtins":
            return function.__name__ in _PURE_BUILTINS
        return owner.__name__ in ("math", "cmath", "_operator", "_functools", "torch._C._nn",
                                  "torch._C._special", "torch._C._linalg")
    if owner is None:  # a method of a class, such as str.join, or a function of torch
        kind = getattr(function, "__objclass__", None)
        return kind in _PURE_OWNERS or _has_base(kind or object, "torch._C", "TensorBase") or (
            getattr(_functions_of_torch(), function.__name__, None) == function)
    kind = owner if isinstance(owner, type) else type(owner)
    return kind in _PURE_OWNERS or kind.__module__.partition(".")[0] in ("torch", "numpy", "attn")


def _functions_of_torch() -> Any:
    """Has those that a mode sees, and so none that ask for something other than their arguments."""
    torch = sys.modules.get("torch")
    return None if torch is None else torch._C._VariableFunctions


_PURE_OWNERS = {bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, range, slice, _List,
                _Dict, _StandIn, type(None), enum.EnumMeta, object, type}
