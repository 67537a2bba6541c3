"""Expressions as text that `attnc fmt` leaves as it is."""
from __future__ import annotations

import math
from typing import Any, Mapping

from attn.tracing.expressions import (COMPARISONS, OPPOSITE, PRECEDENCE, UNARY, UNARY_PRECEDENCE, Node,
                                      in_32_bits, walk)
from attn.tracing.names import Names

_LEAF = 100
_COLUMNS = 99
_LEAST_WIDTH = 24  # columns that a line within a parenthesis keeps
_KEYWORD = 7
_SHARED = 20  # characters from which an expression that is used twice gets a name
_LONG = 60  # characters from which one gets the name of its variable

assert set(OPPOSITE) == COMPARISONS


class Writer:
    """Writes expressions, with names for some of them."""

    def __init__(self) -> None:
        self._lets: dict[int, str] = {}
        self._done: dict[tuple[int, str], tuple[str, int]] = {}

    def name(self, node: Node, name: str) -> None:
        """Writes `name` for the node from now on."""
        self._lets[id(node)] = name

    def text(self, node: Node) -> str:
        """The expression in the language. Indexes of reductions are named from `j` on."""
        return self._text(node, "j")[0]

    def _text(self, node: Node, each: str) -> tuple[str, int]:
        """Text and precedence; `each` is the variable of the enclosing reduction."""
        if id(node) in self._lets:
            return self._lets[id(node)], _LEAF
        key = (id(node), each)
        if key not in self._done:
            self._done[key] = self._new_text(node, each)
        return self._done[key]

    def _new_text(self, node: Node, each: str) -> tuple[str, int]:
        if node.op == "const":
            return _number(node.value)
        if node.op == "var":
            return node.value, _LEAF
        if node.op == "each":
            return each, _LEAF
        if node.op == "load":
            return f"{node.value.name}[{self._list(node, each)}]", _LEAF
        if node.is_reduction:
            inner = f"j{int(each[1:] or 1) + 1}" if self._has_reduction(node.args[0]) else "j"
            body = self._text(node.args[0], inner)[0]
            return f"{node.op}({inner} in 0..{node.value}: {body})", _LEAF
        if node.op in UNARY:
            return UNARY[node.op] + self._operand(node.args[0], UNARY_PRECEDENCE, each), UNARY_PRECEDENCE
        if node.op in PRECEDENCE:
            return self._binary(node, each), PRECEDENCE[node.op]
        return f"{node.op}({self._list(node, each)})", _LEAF

    def _has_reduction(self, node: Node) -> bool:
        return any(below.is_reduction and id(below) not in self._lets for below in walk([node]))

    def _list(self, node: Node, each: str) -> str:
        return ", ".join(self._text(arg, each)[0] for arg in node.args)

    def _operand(self, node: Node, least: int, each: str, unclear: bool = False) -> str:
        text, precedence = self._text(node, each)
        return f"({text})" if precedence < least or unclear else text

    def _binary(self, node: Node, each: str) -> str:
        op, own = node.op, PRECEDENCE[node.op]
        least_left, least_right = own, own + 1
        if op in COMPARISONS:
            least_left = own + 1
        elif op == "**":
            least_left, least_right = own + 1, UNARY_PRECEDENCE
        elif op in ("&&", "||"):
            least_right = own
        sides = [self._operand(arg, least, each, op == "||" and self._is_conjunction(arg, each))
                 for arg, least in zip(node.args, (least_left, least_right))]
        return f"{sides[0]} {op} {sides[1]}"

    def _is_conjunction(self, node: Node, each: str) -> bool:
        return self._text(node, each)[1] == PRECEDENCE["&&"]


def _number(value: bool | int | float) -> tuple[str, int]:
    if isinstance(value, bool):
        return ("true" if value else "false"), _LEAF
    if isinstance(value, float) and math.isinf(value):
        return ("inf", _LEAF) if value > 0 else ("-inf", UNARY_PRECEDENCE)
    if isinstance(value, int) and in_32_bits(value) != value:
        return f"long({value})", _LEAF
    if value == -1 << 31 and isinstance(value, int):  # a sign is an operation
        return f"{value + 1} - 1", PRECEDENCE["-"]
    return repr(value), _LEAF if math.copysign(1, value) > 0 else UNARY_PRECEDENCE


def text_of(node: Node) -> str:
    """An expression, without names for its parts."""
    return Writer().text(node)


def name_parts(roots: list[Node], wishes: Mapping[int, str], names: Names,
               writer: Writer) -> list[tuple[str, str]]:
    """Names for what is used more than once, and for long parts that had a name: name and text of each,
    in an order in which they can be written."""
    nodes = walk(roots)
    uses: dict[int, int] = {}
    for node in nodes:
        for arg in node.args:
            uses[id(arg)] = uses.get(id(arg), 0) + 1
    for root in roots:
        uses[id(root)] = uses.get(id(root), 0) + 1
    lets = []
    for node in nodes:
        if not node.args or node.size:
            continue
        text = writer.text(node)
        wish = wishes.get(id(node))
        shared = uses[id(node)] > 1 and len(text) >= _SHARED
        is_root = any(node is root for root in roots) and uses[id(node)] == 1
        if shared or (wish and len(text) >= _LONG and not is_root):
            name = names.unique(wish or "part", "part")
            writer.name(node, name)
            lets.append((name, text))
    return lets


def clause(keyword: str, body: str = "") -> str:
    """One clause, broken into lines."""
    if not body:
        return f"  {keyword};\n"
    start = f"  {keyword.ljust(_KEYWORD)} "
    return f"{start}{wrap(body, len(start))};\n"


def wrap(text: str, indent: int) -> str:
    """Breaks text after commas and before operators, at the least deeply nested ones, as fmt does. Lines
    begin behind the innermost parenthesis that is open."""
    places = _places(text)
    out, start, after, column = "", 0, 0, indent
    open_at: list[int] = []  # the column behind each open parenthesis
    while after < len(places) and len(text) - start > max(_COLUMNS - column, 1):
        best = after  # even if it is beyond the width
        while after < len(places) and places[after][0] <= start + max(_COLUMNS - column, 1):
            if places[after][1] <= places[best][1]:
                best = after
            after += 1
        line = text[start:places[best][0]]
        column = _next_column(line, column, open_at, indent)
        out += line + "\n" + " " * column
        start, after = places[best][0] + 1, best + 1
    return out + text[start:]


def _next_column(line: str, column: int, open_at: list[int], indent: int) -> int:
    """Where the line after `line`, which begins at `column`, begins. Updates `open_at`."""
    for at, char in enumerate(line, column + 1):
        if char in "([":
            open_at.append(at)
        elif char in ")]" and open_at:
            open_at.pop()
    return next((at for at in reversed(open_at) if at + _LEAST_WIDTH <= _COLUMNS + 1), indent)


def _places(text: str) -> list[tuple[int, int]]:
    """The spaces at which a line may be broken, and their weights; lower ones are better."""
    bracket, depth = 16, 0
    found: list[tuple[int, int]] = []
    for at, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char != " " or at == 0:
            continue
        if text[at - 1] == ",":
            found.append((at, depth * bracket))
        precedence = PRECEDENCE.get(text[at + 1:].split(" ", 1)[0])
        if precedence:
            found.append((at, depth * bracket + precedence))
    return found


def conjuncts(node: Node) -> list[Node]:
    """The conditions that a mask joins by `&&`."""
    if node.op != "&&":
        return [node]
    return conjuncts(node.args[0]) + conjuncts(node.args[1])


def mask_clauses(mask: Node, writer: Writer) -> str:
    """One clause if it fits into a line, otherwise one for each condition."""
    whole = writer.text(mask)
    if len(whole) + _KEYWORD + 3 <= _COLUMNS:
        return clause("mask", whole)
    return "".join(clause("mask", writer.text(part)) for part in conjuncts(mask))


def dims(sizes: Mapping[str, int]) -> str:
    """Sizes as a `dims` clause lists them: "B = 2, Sq = 8"."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def tensor_clause(capture: Any, extents: list[str], learned: bool, facts: list[str]) -> str:
    """The clause that declares a captured tensor, learned or not, with its facts, such as "monotone"."""
    keyword = "learn" if learned else "tensor"
    return clause(keyword, f"{capture.name}: {capture.dtype}[{', '.join(extents)}]" + "".join(
        f" {fact}" for fact in facts))
