"""Where a mod indexes tensors, so that errors of attnc about its spec can name the line of Python."""
from __future__ import annotations

import ast
import linecache
import re
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

from attn.errors import Diagnostic, SpecError, TraceError
from attn.tracing import dialects, places

if TYPE_CHECKING:
    from types import CodeType

    from attn.tracing.expressions import Node

_OF_MODS = ("score", "mask", "let", "tensor", "learn")  # clauses that a trace writes of mods
_NEGATIVE = "indexes start at 0"
_READ = re.compile(r"(\w+)\[")
_OF_VALUE = re.compile(r"(\w+)\[(.*)\]: index (\d+) is (-?\d+), outside ")


class Place(NamedTuple):
    """In a source file: a line, and the bytes of it that an expression takes, if Python knows them."""

    filename: str
    line: int
    columns: tuple[int, int] | None = None

    @property
    def source(self) -> str:
        """The line of source, "" if the file cannot be read."""
        return linecache.getline(self.filename, self.line).rstrip("\n")

    @property
    def expression(self) -> str | None:
        """The expression on the line, None if its columns are not known."""
        if self.columns is None:
            return None
        return self.source.encode()[slice(*self.columns)].decode(errors="replace")


class Indexed(NamedTuple):
    """An index of a captured tensor: which of the expression's indexes it is, counted from 0, the tensor's
    dimension and its size, and what it is indexed with."""

    position: int
    axis: int
    size: int
    node: Node
    capture: Any
    place: Place


class Origin(NamedTuple):
    """The same by names, as the spec has it. The origin of a whole mod has no tensor, and axis -1."""

    tensor: str
    axis: int
    size: int
    text: str
    position: int
    place: Place
    is_of_jax: bool = False  # whether hints are said in JAX's words


def note(noted: list[Indexed], capture: Any, axes: Sequence[int], nodes: Sequence[Node | None]) -> None:
    """Remembers that the running line of the mod indexes these axes."""
    frame = places._user_frame()
    if frame is None:
        return
    place = Place(frame.f_code.co_filename, frame.f_lineno, _columns(frame.f_code, frame.f_lasti, frame.f_lineno))
    noted += [Indexed(position, axis, capture.shape[axis], node, capture, place)
              for position, (axis, node) in enumerate(zip(axes, nodes)) if node is not None]


def _columns(code: CodeType, instruction: int, line: int) -> tuple[int, int] | None:
    """The columns of the running expression; None if it takes several lines, or before Python 3.11."""
    if not hasattr(code, "co_positions"):
        return None
    first, last, start, end = list(code.co_positions())[instruction // 2]
    if not first == last == line or start is None or end is None:
        return None
    return start, end


def origins_of(noted: Sequence[Indexed], text: Callable[[Node], str],
               *mods: Callable[..., Any] | None) -> tuple[Origin, ...]:
    """`text` writes nodes as the spec does; `mods` are the score_mod and the mask_mod."""
    of_jax = dialects.is_of_jax()
    found = [Origin(each.capture.name, each.axis, each.size, text(each.node), each.position, each.place, of_jax)
             for each in noted]
    for clause, mod in zip(("score", "mask"), mods):
        at = None if mod is None else places.of_function(mod)
        if at is not None:
            found.append(Origin("", -1, 0, clause, 0, Place(*at), of_jax))
    return tuple(found)


def at_python(error: SpecError, text: str, origins: Sequence[Origin]) -> Exception:
    """The error of attnc about a traced spec, in terms of the mod; the same error if it is not about a mod."""
    for diagnostic in error.diagnostics:
        if diagnostic.severity != "error":
            continue
        origin = _origin(text, diagnostic, origins)
        if origin is None:
            return error
        notes = _notes(diagnostic, origin)
        shown = f"{diagnostic.message} [{diagnostic.code}]\n{_shown(origin.place)}"
        return TraceError(shown, notes, origin.place.filename, origin.place.line, origin.place.source.strip())
    return error


def notes_of_value(message: str, origins: Sequence[Origin]) -> list[str]:
    """Where the mod reads `table[..]: index 0 is -3, outside 0..39`, an index that depends on values."""
    found = _OF_VALUE.match(message)
    if found is None:
        return []
    tensor, axis, value = found[1], int(found[3]), int(found[4])
    fitting = [each for each in origins if each.tensor == tensor and each.axis == axis]
    same = [each for each in fitting if _packed(each.text) in _packed(found[2])]
    for origin in (same or fitting)[:1]:
        return [f"it is read here:\n{_shown(origin.place)}", *([_wraps(origin)] if value < 0 else [])]
    return []


def _wraps(origin: Origin) -> str:
    library = "JAX" if origin.is_of_jax else "torch"
    return (f"{library} counts a negative index from the end, a spec does not: write "
            f"`{_wrapped(origin)}` if that is meant")


def _shown(place: Place) -> str:
    source = place.source
    line = source.lstrip()
    shown = f"  --> {place.filename}:{place.line}"
    if not line:
        return shown
    shown += f"\n   |  {line}"
    if place.columns is None:
        return shown
    before, inside = (len(source.encode()[part].decode(errors="replace"))
                      for part in (slice(place.columns[0]), slice(*place.columns)))
    return f"{shown}\n   |  {' ' * (before - len(source) + len(line))}{'^' * inside}"


def _notes(diagnostic: Diagnostic, origin: Origin) -> list[str]:
    if not origin.tensor:
        return [f"the spec says there: {_line_of(diagnostic)}"]
    notes = []
    if _NEGATIVE in diagnostic.message:
        notes.append(_wraps(origin))
    advice = [line.split("help: ", 1)[1] for line in diagnostic.text.splitlines() if "= help: " in line]
    notes += [f"in the spec, {line}" for line in advice if line.startswith("in a table")]
    hint = "for scores that do not count: hide them by a mask, guard the read with `torch.where`, or use `torch.clamp`"
    return [*notes, dialects.said(hint, origin.is_of_jax)]


def _line_of(diagnostic: Diagnostic) -> str:
    """The line of the spec, of the text that attnc printed."""
    lines = [line.split("|", 1)[1].strip() for line in diagnostic.text.splitlines() if "|" in line]
    return next((f"`{line}`" for line in lines if line.strip("^ ")), diagnostic.code)


def _wrapped(origin: Origin) -> str:
    """The user's expression with `% size`, or the spec's if its source is not known."""
    expression = origin.place.expression or ""
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError:
        tree = None
    if isinstance(tree, ast.Subscript):
        parts = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
        if origin.position < len(parts):
            part = parts[origin.position]
            old = ast.get_source_segment(expression, part)
            start, end = part.col_offset, part.end_col_offset
            raw = expression.encode()
            return (raw[:start] + f"({old}) % {origin.size}".encode() + raw[end:]).decode()
    return f"{origin.tensor}[({origin.text}) % {origin.size}]"


def _origin(text: str, diagnostic: Diagnostic, origins: Sequence[Origin]) -> Origin | None:
    lines = text.splitlines(keepends=True)
    if not 0 < diagnostic.line <= len(lines):
        return None
    place = sum(map(len, lines[: diagnostic.line - 1])) + diagnostic.column - 1
    tensor, axis, index = _enclosing(text, place)
    fitting = [each for each in origins if each.tensor and (each.tensor, each.axis) == (tensor, axis)]
    same = [each for each in fitting if _packed(each.text) == _packed(index)]
    clause, name = _clause(text, place)
    if not tensor and clause == "let":  # of an index that is written more than once
        same = [each for each in origins if each.text == name]
    whole = _READ.match(text, place)
    if not fitting and not same and whole:
        same = [each for each in origins if each.tensor == whole[1] and not each.text.isdigit()]
    if same or fitting:
        return (same or fitting)[0]
    wanted = [clause] if clause in ("score", "mask") else ["score", "mask"] if clause in _OF_MODS else []
    return next((each for name in wanted for each in origins if not each.tensor and each.text == name), None)


def _packed(text: str) -> str:
    return "".join(text.split())


def _enclosing(text: str, place: int) -> tuple[str, int, str]:
    """The tensor whose index is at a place, its axis, and the whole index."""
    start, axis, depth, begin = place, 0, 0, None
    while start > 0:
        start -= 1
        char = text[start]
        if char in ")]":
            depth += 1
        elif char in "([" and depth:
            depth -= 1
        elif char == "(":
            axis = 0  # of a call within the index
            begin = None
        elif char == "," and not depth:
            axis += 1
            begin = start + 1 if begin is None else begin
        elif char == "[":
            begin = start + 1 if begin is None else begin
            break
        elif char in ";{":
            return "", 0, ""
    return _last_name(text[:start]), axis, text[begin:_end(text, begin or 0)]


def _last_name(text: str) -> str:
    name = ""
    for char in reversed(text):
        if not (char.isalnum() or char == "_"):
            break
        name = char + name
    return name


def _end(text: str, begin: int) -> int:
    """Where the index ends that begins there."""
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] in "([") - (text[at] in ")]")
        if depth < 0 or (depth == 0 and text[at] == ","):
            return at
    return len(text)


def _clause(text: str, place: int) -> tuple[str, str]:
    """The keyword of the clause at a place, and the word after it."""
    begin = max(text.rfind(";", 0, place), text.rfind("{", 0, place)) + 1
    words = [*text[begin:].split(None, 2), "", ""]
    return words[0], words[1]
