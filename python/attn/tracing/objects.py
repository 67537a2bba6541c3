"""Stand-ins for modules, classes and objects of the user, whose attributes and methods are read through a Watch."""
from __future__ import annotations

import enum
import functools
import types
from typing import TYPE_CHECKING, Any, Callable

from attn.tracing import reads
from attn.tracing.functions import random_error
from attn.tracing.places import is_library, is_library_module
from attn.tracing.reads import MISSING

if TYPE_CHECKING:
    from attn.tracing.watching import Watch

_NOWHERE = -1  # the place of a library's module that is reached through another


class StandIn:
    """Stands for a module, class or object of the user."""

    __slots__ = ("_attn",)

    def __init__(self, watch: Watch, place: int, value: Any):
        object.__setattr__(self, "_attn", (watch, place, value))

    def __getattribute__(self, name: str) -> Any:
        watch, place, value = inside(self)
        return get(watch, place, value, name)

    def __setattr__(self, name: str, value: Any) -> None:
        watch, place, _ = inside(self)
        assign(watch, place, name, value)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(real(value), real(self))

    def __subclasscheck__(self, value: Any) -> bool:
        return issubclass(real(value), real(self))


inside = StandIn.__dict__["_attn"].__get__


def real(value: Any) -> Any:
    """What a stand-in is for, and anything else as it is."""
    return inside(value)[2] if type(value) is StandIn else value


_TEXTS: dict[str, Callable[..., str]] = {"__repr__": repr, "__str__": str, "__format__": format}
_OPERATORS = frozenset(
    f"__{side}{name}__" for side in ("", "r") for name in
    "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()) | {
        "__lt__", "__le__", "__gt__", "__ge__"}


def _special(name: str) -> Callable[..., Any]:
    def method(self: StandIn, *args: Any, **kwargs: Any) -> Any:
        watch, _, value = inside(self)
        if name == "__call__" and isinstance(value, type):
            watch.is_opaque(f"it makes a {value.__name__}")
            return value(*args, **kwargs)
        return call(watch, self, name, args, kwargs)

    return method


for _name in ("__call__", "__getitem__", "__setitem__", "__len__", "__iter__", "__contains__", "__bool__",
              "__eq__", "__ne__", "__hash__", "__neg__", "__invert__", "__abs__", "__float__", "__int__",
              "__index__", "__repr__", "__str__", "__format__", "__enter__", "__exit__", "__reversed__",
              *sorted(_OPERATORS)):
    setattr(StandIn, _name, _special(_name))


# --- what a Watch finds


def get(watch: Watch, place: int, value: Any, name: str) -> Any:
    """An attribute of what a stand-in is for."""
    if name in ("__class__", "__dict__"):
        watch.is_opaque(f"it reads `{name}` of a {type(value).__name__}")
        return getattr(value, name)
    if isinstance(value, types.ModuleType):
        return _of_module(watch, value, place, name)
    of = _of_class if isinstance(value, type) else _of_object
    found = of(watch, value, place, name)
    if found is MISSING:
        raise AttributeError(f"'{type(value).__name__}' object has no attribute '{name}'")
    return found


def _of_module(watch: Watch, module: types.ModuleType, place: int, name: str) -> Any:
    if name in vars(module) and type(module) is types.ModuleType:
        if is_library_module(module.__name__):
            return _of_library(watch, module, name)
        return watch.read(place, reads.attribute, name, name)
    watch.is_opaque(f"`{module.__name__}.{name}` is not a variable of the module")
    return getattr(module, name)


def _of_library(watch: Watch, module: types.ModuleType, name: str) -> Any:
    """What a library has by a name does not change."""
    if module.__name__ in ("numpy.random", "torch.random"):
        raise random_error()
    value = vars(module)[name]
    return StandIn(watch, _NOWHERE, value) if type(value) is types.ModuleType else value


def _of_class(watch: Watch, kind: type, place: int, name: str) -> Any:
    if name == "apply" and is_autograd_function(kind):
        return forward_of(watch.stand_ins[place])
    static = reads.find_in_class(kind, name)
    if isinstance(kind, enum.EnumMeta) and name in kind.__members__:
        return watch.read(place, reads.attribute, name, name)
    by_metaclass = type(kind) is not type and reads.find_in_class(type(kind), name) is not MISSING
    known = static is not MISSING and _is_simple_descriptor(static) and is_plain_metaclass(type(kind))
    if by_metaclass or not known:
        watch.is_opaque(f"`{name}` of the class `{kind.__name__}` is found by code")
    return watch.read(place, reads.attribute, name, name)


def forward_of(function: Any) -> Any:
    """What the class of a torch.autograd.Function computes: gradients follow from its expression."""
    separate = any("setup_context" in base.__dict__ for base in real(function).__mro__
                   if not base.__module__.startswith("torch."))
    return function.forward if separate else functools.partial(function.forward, _Context())


def _of_object(watch: Watch, value: Any, place: int, name: str) -> Any:
    kind = type(value)
    static = reads.find_in_class(kind, name)
    if type(static) is property and static.fget is not None:
        return watch.read(place, reads.of_class, name, name)(watch.stand_ins[place])
    own = name in getattr(value, "__dict__", ())
    if static is MISSING:
        search = reads.find_in_class(kind, "__getattr__")
        known = search is MISSING or is_library(getattr(search, "__code__", _NO_CODE))
    else:
        known = _is_simple_descriptor(static)
    if not own and not known:
        watch.is_opaque(f"`{name}` of a {kind.__name__} is found by code")
    inner = ("weight", "_modules", "_parameters", "_buffers")  # a layer's have the layer's name
    wish = watch.wishes.get(place) if name in inner else None
    return watch.read(place, reads.attribute, name, wish or name)


def assign(watch: Watch, place: int, name: str, value: Any) -> None:
    """Sets an attribute of a watched object, which makes the mod opaque."""
    watch.is_opaque(f"it writes to `{name}`")
    setattr(watch.values[place], name, real(value))
    watch.forget(place)


def call(watch: Watch, this: StandIn, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A special method, such as `__call__`."""
    _, place, value = inside(this)
    found = reads.find_in_class(type(value), name)
    if name == "__call__" and has_base(type(value), "torch.nn.modules.module", "Module"):
        return _forward_of(watch, value, place)(*args, **kwargs)
    if type(found) is types.FunctionType:
        return watch.read(place, reads.of_class, name, name)(this, *args, **kwargs)
    if found is MISSING or found is getattr(object, name, None):
        return _without_method(watch, this, name, args)
    watch.is_opaque(f"it calls `{name}` of a {type(value).__name__}")
    return found.__get__(value)(*map(real, args), **{key: real(each) for key, each in kwargs.items()})


def _forward_of(watch: Watch, module: Any, place: int) -> Any:
    for hooks in ("_forward_hooks", "_forward_pre_hooks"):
        if len(get(watch, place, module, hooks)):
            watch.is_opaque(f"a {type(module).__name__} has hooks")
            return module
    return get(watch, place, module, "forward")


def _without_method(watch: Watch, this: StandIn, name: str, args: tuple[Any, ...]) -> Any:
    value = real(this)
    if name == "__eq__":
        return True if real(args[0]) is value else NotImplemented
    if name == "__ne__":
        return False if real(args[0]) is value else NotImplemented
    if name == "__hash__":
        return hash(value)
    if name == "__bool__":
        lengths = reads.find_in_class(type(value), "__len__")
        return True if lengths is MISSING else bool(call(watch, this, "__len__", (), {}))
    if name in _OPERATORS:
        return NotImplemented
    if name in _TEXTS:
        watch.is_opaque(f"it writes a {type(value).__name__} as text")
        return _TEXTS[name](value, *args)
    raise TypeError(f"'{type(value).__name__}' object has no `{name}`")


# --- classes


def has_base(kind: type, module: str, name: str) -> bool:
    """Whether a class, or one that it derives from, is this one of a module, which is not imported for that."""
    return any(base.__name__ == name and base.__module__ == module for base in kind.__mro__)


def is_watched(value: Any) -> bool:
    """Whether a class or a module is not only of a library; of those, modules may have others."""
    if isinstance(value, types.ModuleType):
        return type(value) is types.ModuleType
    return not is_library_module(value.__module__)


class _Context:
    """What a torch.autograd.Function writes to in its forward."""

    def save_for_backward(self, *values: Any) -> None:
        """Gradients follow from the forward's expression."""


def is_autograd_function(kind: type) -> bool:
    """Whether the class is a torch.autograd.Function, without importing PyTorch."""
    return has_base(kind, "torch.autograd.function", "Function")


def is_plain_metaclass(kind: type) -> bool:
    """Whether attributes of a class of this metaclass are found as those of any class."""
    return reads.find_in_class(kind, "__getattribute__") is type.__getattribute__ and reads.find_in_class(
        kind, "__getattr__") is MISSING


_NO_CODE = (lambda: None).__code__
_SIMPLE = (types.FunctionType, classmethod, staticmethod, property, types.MemberDescriptorType,
           types.GetSetDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType)


def _is_simple_descriptor(value: Any) -> bool:
    return isinstance(value, _SIMPLE) or not hasattr(type(value), "__get__")
