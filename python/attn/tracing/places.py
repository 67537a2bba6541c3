"""Where in the user's source something happened, for messages."""
from __future__ import annotations

import ast
import contextlib
import enum
import functools
import inspect
import linecache
import sys
import types
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Callable, Sequence

from attn.errors import TraceError
from attn.tracing.dialects import said

_OURS = str(Path(__file__).parents[1]) + "/"
_PYTHONS = tuple(str(module.__file__) for module in (ast, contextlib, enum, functools, inspect, types))


def is_library(code: CodeType) -> bool:
    """Whether the code is this package's, torch's, NumPy's or Python's own."""
    return _is_library_file(code.co_filename)


@functools.lru_cache(maxsize=None)
def _is_library_file(name: str) -> bool:
    return name.startswith((_OURS, "<frozen", *map(_folder, ("torch", "numpy")), *_PYTHONS))


_LIBRARIES = frozenset("torch numpy attn math cmath operator _operator functools builtins typing".split())


def is_library_module(name: str | None) -> bool:
    """Whether a module's contents do not change while a program runs."""
    return str(name).partition(".")[0] in _LIBRARIES


def is_pure(code: CodeType) -> bool:
    """Whether a library's function depends on its arguments alone, as far as a mod can call it."""
    return _is_pure_file(code.co_filename)


@functools.lru_cache(maxsize=None)
def _is_standard_file(name: str) -> bool:
    return name.startswith((_STANDARD, "<frozen")) and not name.startswith(_INSTALLED)


def is_standard(code: CodeType) -> bool:
    """Whether the code is of Python's standard library."""
    return _is_standard_file(code.co_filename)


_STANDARD = str(Path(ast.__file__).parent) + "/"
_INSTALLED = (_STANDARD + "site-packages/", _STANDARD + "dist-packages/")
_PURE = ("_tensor.py", "functional.py", "overrides.py", "_ops.py", "_VF.py", "nn/functional.py",
         "nn/modules/", "nn/attention/flex_attention.py", "special/", "autograd/function.py",
         "_jit_internal.py", "nn/parameter.py")


@functools.lru_cache(maxsize=None)
def _is_pure_file(name: str) -> bool:
    return name.startswith((_OURS, enum.__file__, functools.__file__, types.__file__, _folder("numpy"),
                            *(_folder("torch") + path for path in _PURE)))


def _folder(package: str) -> str:
    """Where an imported package is installed."""
    module = sys.modules.get(package)
    file = None if module is None else module.__file__
    return "<frozen" if file is None else str(Path(file).parent) + "/"


def is_of_jax(code: CodeType) -> bool:
    """Whether the code is JAX's own."""
    return "jax" in sys.modules and code.co_filename.startswith(_folder("jax"))


def refusal(message: str, notes: Sequence[str] = (), *, at: tuple[str, int] | None = None) -> TraceError:
    """A TraceError for a line of the user's function: by default the one that is being executed."""
    notes = [said(note) for note in notes]
    place = at or _current()
    if place is None:
        return TraceError(message, notes)
    filename, lineno = place
    line = linecache.getline(filename, lineno).strip()
    shown = f"{message}\n  --> {filename}:{lineno}" + (f"\n   |  {line}" if line else "")
    return TraceError(shown, notes, filename, lineno, line)


def of_function(function: Callable[..., Any]) -> tuple[str, int] | None:
    """File and line of a function's definition."""
    function = getattr(function, "func", function)
    code = getattr(function, "__code__", None) or getattr(
        getattr(type(function), "__call__", None), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else None


def of_exception(traceback: TracebackType | None) -> tuple[str, int] | None:
    """The innermost line of the user that an exception passed."""
    place = None
    while traceback is not None:
        if not is_library(traceback.tb_frame.f_code) and not is_of_jax(traceback.tb_frame.f_code):
            place = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next
    return place


def is_within_jax(traceback: TracebackType | None) -> bool:
    """Whether a function of JAX raised an exception, or what it called."""
    while traceback is not None:
        if is_of_jax(traceback.tb_frame.f_code):
            return True
        traceback = traceback.tb_next
    return False


def _user_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library(frame.f_code):
        frame = frame.f_back
    return frame


def _current() -> tuple[str, int] | None:
    frame = _user_frame()
    return (frame.f_code.co_filename, frame.f_lineno) if frame else None


_INSTEAD: dict[str, str] = {
    "comparison": "a chained comparison `a <= x < b` is written `(a <= x) & (x < b)`",
    "and": "`x and y` is written `x & y`, with parentheses around comparisons",
    "or": "`x or y` is written `x | y`, with parentheses around comparisons",
    "not": "`not x` is written `~x`",
    "if": "`if` cannot choose by a value of a score: write `torch.where(condition, a, b)`",
    "while": "a loop cannot end by a value of a score: loops over Python numbers are unrolled",
    "assert": "an `assert` cannot test a value of a score",
    "in": "`x in values` is written `torch.isin(x, tensor)`, or comparisons joined by `|`",
    "min": "`min(a, b)` is written `torch.minimum(a, b)`",
    "max": "`max(a, b)` is written `torch.maximum(a, b)`",
    "any": "`any(..)` is written with `|`, or `.any()` of a vector",
    "all": "`all(..)` is written with `&`, or `.all()` of a vector",
    "bool": "`bool(x)` is written `x != 0`",
}


def control_flow() -> TraceError:
    """The error for `bool(x)` of a traced value, by what the line does with it."""
    frame = _user_frame()
    kinds = _kinds(frame) if frame else []
    notes = [_INSTEAD[kind] for kind in kinds] or [
        _INSTEAD["comparison"], _INSTEAD["and"], _INSTEAD["if"]]
    return refusal("the mod is traced once, for all scores, so a value that differs between them is "
                   "neither true nor false", notes)


def _kinds(frame: FrameType) -> list[str]:
    """What on this line asks for a truth value, innermost first."""
    source = "".join(linecache.getlines(frame.f_code.co_filename))
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    line = frame.f_lineno
    nodes = [node for node in ast.walk(tree)
             if getattr(node, "lineno", line + 1) <= line <= _last_line(node)]
    kinds: list[str] = []
    for node in reversed(nodes):
        kind = _kind(node)
        if kind and kind not in kinds:
            kinds.append(kind)
    return kinds


def _last_line(node: Any) -> int:
    """The last line of a statement; for one with a body, that of its condition."""
    if isinstance(node, (ast.If, ast.While)):
        node = node.test
    return int(getattr(node, "end_lineno", None) or node.lineno)


def _kind(node: ast.AST) -> str:
    if isinstance(node, ast.Compare):
        if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            return "in"
        return "comparison" if len(node.ops) > 1 else ""
    if isinstance(node, ast.BoolOp):
        return "and" if isinstance(node.op, ast.And) else "or"
    if isinstance(node, ast.UnaryOp):
        return "not" if isinstance(node.op, ast.Not) else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id if node.func.id in ("min", "max", "any", "all", "bool") else ""
    kinds = {ast.If: "if", ast.IfExp: "if", ast.While: "while", ast.Assert: "assert"}
    return kinds.get(type(node), "")


def signature_error(function: Callable[..., Any], parameters: Sequence[str], what: str) -> TraceError | None:
    """An error if the function cannot be called with these parameters."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*parameters)
        return None
    except TypeError:
        wanted = ", ".join(parameters)
        return refusal(f"a {what} takes {len(parameters)} parameters, ({wanted}); "
                       f"this function has {signature}", at=of_function(function))
