"""Copies of functions whose variables are read through a Watch."""
from __future__ import annotations

import dis
import functools
import types
from typing import TYPE_CHECKING, Any

from attn.tracing import reads
from attn.tracing.objects import forward_of, is_autograd_function, real
from attn.tracing.places import is_library_module
from attn.tracing.pure import builtin
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


def of_partial(watch: Watch, partial: functools.partial, place: int, wish: str) -> Any:
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


class Scope(dict):
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
            return builtin(self._watch, name)
        return found
