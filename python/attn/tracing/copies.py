"""Copies of functions whose variables are read through a Watch, and Python's own functions, of which a mod may call
those that depend on their arguments alone."""
from __future__ import annotations

import dis
import enum
import functools
import sys
import types
from typing import TYPE_CHECKING, Any, Callable

from attn.tracing import reads
from attn.tracing.containers import Dict, List
from attn.tracing.objects import StandIn, forward_of, has_base, inside, is_autograd_function, real
from attn.tracing.places import is_library_module
from attn.tracing.reads import MISSING

if TYPE_CHECKING:
    from attn.tracing.watching import Watch


def of_function(watch: Watch, function: types.FunctionType, place: int, wish: str) -> Any:
    """A copy of the function whose globals, closure and defaults are watched; the function itself, as
    opaque, if it has side effects."""
    code, cells = function.__code__, tuple(types.CellType() for _ in function.__closure__ or ())
    reason = _side_effect(code)
    if reason:
        watch.is_opaque(reason)
        return function
    new = types.FunctionType(code, Scope(watch, place, function.__globals__), function.__name__, None,
                             cells or None)
    watch.stand_ins[place] = new  # it may refer to itself
    for i, name in enumerate(code.co_freevars):
        found = watch.read(place, reads.cell, i, name)
        if found is not MISSING:
            cells[i].cell_contents = real(found) if name == "__class__" else found
    count = len(function.__defaults__ or ())
    names = code.co_varnames[code.co_argcount - count:code.co_argcount]
    new.__defaults__ = tuple(watch.read(place, reads.default, i, name) for i, name in enumerate(names))
    new.__kwdefaults__ = {name: watch.read(place, reads.keyword, name, name)
                          for name in function.__kwdefaults__ or ()}
    for name in function.__dict__:
        setattr(new, name, watch.read(place, reads.attribute, name, name))
    return new


def of_method(watch: Watch, method: types.MethodType, place: int, wish: str) -> Any:
    """A method whose function and owner are watched."""
    owner = method.__self__
    if isinstance(owner, type) and is_autograd_function(owner) and method.__name__ == "apply":
        return forward_of(watch.read(place, reads.attribute, "__self__", wish))
    function = watch.read(place, reads.attribute, "__func__", wish)
    return types.MethodType(function, watch.read(place, reads.attribute, "__self__", wish))


def of_partial(watch: Watch, partial: functools.partial[Any], place: int, wish: str) -> Any:
    """A functools.partial whose function and arguments are watched."""
    function = watch.read(place, reads.attribute, "func", wish)
    args = watch.read(place, reads.attribute, "args", wish)
    code = getattr(function, "__code__", None)
    if code is not None:  # names of the parameters are better ones
        args = tuple(watch.read(watch.places[id(partial.args)], reads.item, i, name)
                     for i, name in zip(range(len(args)), (*code.co_varnames, *("",) * len(args))))
    return functools.partial(function, *args, **watch.read(place, reads.attribute, "keywords", wish))


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


class Scope(dict[str, Any]):
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
            return _builtin(self._watch, name)
        return found


# --- Python's functions


def _type(watch: Watch, *args: Any) -> Any:
    if len(args) != 1:
        watch.is_opaque("it makes a class")
        return type(*args)
    value = args[0]
    if type(value) is StandIn:
        _, place, _ = inside(value)
        return watch.read(place, reads.class_of, None, "")
    return _CLASSES.get(type(value), type(value))


def _isinstance(watch: Watch, value: Any, kinds: Any) -> bool:
    return isinstance(real(value), tuple(map(real, kinds)) if type(kinds) is tuple else real(kinds))


def _callable(watch: Watch, value: Any) -> bool:
    return callable(real(value))


_CAREFUL: dict[str, Callable[..., Any]] = {"isinstance": _isinstance, "callable": _callable, "type": _type}
_PURE_BUILTINS = frozenset(
    "abs all any bool bytes complex dict divmod enumerate filter float frozenset getattr hasattr int iter "
    "len list map max min next pow print range repr reversed round set slice sorted str sum tuple zip "
    "isinstance issubclass callable type object format ord chr bin hex NotImplemented Ellipsis "
    "__build_class__ property staticmethod classmethod __name__ __debug__".split()) | {
        name for name in dir(__import__("builtins")) if name.endswith(("Error", "Exception", "Warning"))}


def is_pure_builtin(function: Any) -> bool:
    """Whether what a function that is not Python's gives depends on its arguments alone."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, types.ModuleType):
        if owner.__name__ == "builtins":
            return function.__name__ in _PURE_BUILTINS
        return owner.__name__ in ("math", "cmath", "_operator", "_functools", "torch._C._nn",
                                  "torch._C._special", "torch._C._linalg")
    if owner is None:  # a method of a class, such as str.join, or a function of torch
        kind = getattr(function, "__objclass__", None)
        return kind in _PURE_OWNERS or has_base(kind or object, "torch._C", "TensorBase") or (
            getattr(_functions_of_torch(), function.__name__, None) == function)
    kind = owner if isinstance(owner, type) else type(owner)
    return kind in _PURE_OWNERS or kind.__module__.partition(".")[0] in ("torch", "numpy", "attn")


def _functions_of_torch() -> Any:
    """Has those that a mode sees, and so none that ask for something other than their arguments."""
    torch = sys.modules.get("torch")
    return None if torch is None else torch._C._VariableFunctions


_CLASSES: dict[Any, Any] = {List: list, Dict: dict}
_PURE_OWNERS = {bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, range, slice, List,
                Dict, StandIn, type(None), enum.EnumMeta, object, type}


def _builtin(watch: Watch, name: str) -> Any:
    """The function of Python that a mod means by a name. Raises KeyError for those that need no care."""
    if name in _CAREFUL:
        return functools.partial(_CAREFUL[name], watch)
    if name not in _PURE_BUILTINS:
        watch.is_opaque(f"it uses Python's `{name}`")
    raise KeyError(name)
