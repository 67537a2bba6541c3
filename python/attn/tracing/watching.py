"""A copy of a mod that tells what it reads.

What a mod refers to is handed to it as stand-ins, each made when it is read: functions with the same code,
whose variables are read through a Watch; lists and dicts that report their items; and for modules, classes
and objects a `StandIn`, whose attributes and methods are read through the Watch too. NumPy arrays become
values that can be indexed by traced ones, `torch.autograd.Function`s their forward, because they accept only
tensors. Constants, tensors and what libraries have are handed over as they are.

Whatever a mod does that is not reported makes the trace opaque: `Watch.opaque` says why. Such a trace is as
good as any other, but nobody can know whether another would be the same.
"""
from __future__ import annotations

import contextlib
import functools
import gc
import sys
import types
from collections import OrderedDict
from typing import Any, Callable, Iterator

from attn.tracing import reads
from attn.tracing.captures import is_array
from attn.tracing.containers import Dict, List
from attn.tracing.copies import Scope, is_pure_builtin, of_function, of_method, of_partial
from attn.tracing.jax_functions import is_followed
from attn.tracing.objects import StandIn, has_base, is_watched
from attn.tracing.places import is_library, is_library_module, is_pure, is_standard
from attn.tracing.reads import OPAQUE, Read


class Watch:
    """The reads of one trace, in their order: `steps` has each with the key of what it found.

    `on_function` makes the stand-in of a function of JAX, or of a module that has some, `on_array` that of an array;
    `on_tensor` is told of each tensor. These two get its name, the
    variable, attribute or key through which the mod reaches it, and its place among what was read.
    """

    def __init__(self, mods: tuple[Any, ...], on_tensor: Callable[[Any, str, int], Any],
                 on_array: Callable[[Any, str, int], Any],
                 on_function: Callable[[Any], Any]):
        self.mods = mods
        self.steps: list[tuple[Read, Any]] = []
        self.opaque: str | None = None
        self.values: list[Any] = [mods]
        self._on_tensor, self._on_array, self._on_function = on_tensor, on_array, on_function
        self.places: dict[int, int] = {}
        self._done: dict[Read, Any] = {}
        self.stand_ins: dict[int, Any] = {}
        self.wishes: dict[int, str] = {}
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
                key = reads.key_of(value, self.places, place)
            self.values.append(value)
            self.steps.append((read, key))
            self._done[read] = self._stand_in(value, key, place, wish)
        return self._done[read]

    def _stand_in(self, value: Any, key: Any, place: int, wish: str) -> Any:
        if type(key) is tuple and key[0] == "same":
            return self.stand_ins[key[1]]
        if key is OPAQUE:
            self.is_opaque(f"it reads `{wish}`, a {type(value).__name__}")
        self.stand_ins[place], self.wishes[place] = value, wish
        self.stand_ins[place] = self._new_stand_in(value, key, place, wish)
        return self.stand_ins[place]

    def _new_stand_in(self, value: Any, key: Any, place: int, wish: str) -> Any:
        kind = type(value)
        if kind is reads.Keys:
            return value
        if has_base(kind, "torch", "Tensor"):
            with _outside_of_modes():
                self._on_tensor(value, wish, place)
        elif is_array(value):
            return self._on_array(value, wish, place)
        elif is_followed(value):
            return self._on_function(value)
        elif isinstance(value, (type, types.ModuleType)):
            if isinstance(value, type) and issubclass(value, BaseException) and is_watched(value):
                self.is_opaque(f"it reads `{wish}`, an exception")
                return value
            return StandIn(self, place, value) if is_watched(value) else value
        elif key is OPAQUE or (type(key) is tuple and key[0] == "is"):
            return value
        elif isinstance(value, tuple):
            items = (self.read(place, reads.item, i, f"{wish}_{i}") for i in range(len(value)))
            return tuple(items) if kind is tuple else kind._make(items)
        elif kind in _BY_TYPE:
            return _BY_TYPE[kind](self, value, place, wish)
        elif kind is types.SimpleNamespace or not reads.is_constant(value) and reads.is_plain(kind):
            return StandIn(self, place, value)
        elif not reads.is_constant(value) and kind not in (float, set, frozenset):
            self.is_opaque(f"it reads `{wish}`, a {kind.__name__}")
        return value

    def calls(self, frame: types.FrameType) -> None:
        """A frame of Python begins."""
        code, caller = frame.f_code, frame.f_back
        if self._is_paused or type(frame.f_globals) is Scope or _collects_garbage(code):
            return
        if not is_library(code) and not is_standard(code) and not _is_generated(frame):
            self.is_opaque(f"it runs `{code.co_name}`, which is not watched")
        elif caller is not None and type(caller.f_globals) is Scope and not is_pure(code):
            self.is_opaque(f"it calls `{code.co_name}` of a library")

    def calls_builtin(self, frame: types.FrameType, function: Any) -> None:
        """A function that is not Python's is called."""
        if type(frame.f_globals) is Scope and not is_pure_builtin(function):
            self.is_opaque(f"it calls `{getattr(function, '__name__', function)}`")


def _collects_garbage(code: types.CodeType) -> bool:
    """Whether it is what Python calls when it collects garbage, as JAX lets it: at any place of a mod."""
    return any(getattr(each, "__code__", None) is code for each in gc.callbacks)


def _is_generated(frame: types.FrameType) -> bool:
    """Whether it is code of collections.namedtuple, or of a dataclass of a library."""
    module = str(frame.f_globals.get("__name__"))
    return frame.f_code.co_filename == "<string>" and (
        module.startswith("namedtuple_") or is_library_module(module))


def _outside_of_modes() -> Any:
    torch = sys.modules.get("torch")
    return contextlib.nullcontext() if torch is None else torch._C.DisableTorchFunction()


_BY_TYPE: dict[type, Callable[..., Any]] = {
    list: List, dict: Dict, OrderedDict: Dict, types.FunctionType: of_function,
    types.MethodType: of_method, functools.partial: of_partial,
}
