"""Python's own functions, of which a mod may call those that depend on their arguments alone."""
from __future__ import annotations

import enum
import functools
import sys
import types
from typing import TYPE_CHECKING, Any

from attn.tracing import reads
from attn.tracing.containers import Dict, List
from attn.tracing.objects import StandIn, has_base, inside, real

if TYPE_CHECKING:
    from attn.tracing.watching import Watch


def _type(watch: Watch, *args: Any) -> Any:
    if len(args) != 1:
        watch.is_opaque("it makes a class")
        return type(*args)
    value = args[0]
    if type(value) is StandIn:
        _, place, _ = inside(value)
        return watch.read(place, reads.class_of, None, "")
    return {List: list, Dict: dict}.get(type(value), type(value))


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


_PURE_OWNERS = {bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, range, slice, List,
                Dict, StandIn, type(None), enum.EnumMeta, object, type}


def builtin(watch: Watch, name: str) -> Any:
    """The function of Python that a mod means by a name. Raises KeyError for those that need no care."""
    if name in _CAREFUL:
        return functools.partial(_CAREFUL[name], watch)
    if name not in _PURE_BUILTINS:
        watch.is_opaque(f"it uses Python's `{name}`")
    raise KeyError(name)
