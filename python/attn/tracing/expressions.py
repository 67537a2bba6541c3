"""Expressions of the language, as a graph in which equal expressions are one node."""
from __future__ import annotations

import math
from typing import Any, Callable, Mapping

BOOL, INT, REAL = "bool", "int", "real"
_RANK = {BOOL: 0, INT: 1, REAL: 2}

# Precedences of docs/language.md, by the operator's spelling.
PRECEDENCE = {
    "||": 1, "&&": 2,
    "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3,
    "|": 4, "^": 5, "&": 6, "<<": 7, ">>": 7,
    "+": 8, "-": 8, "*": 9, "/": 9, "//": 9, "%": 9, "**": 11,
}
COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
UNARY = {"neg": "-", "!": "!", "~": "~"}
UNARY_PRECEDENCE = 10


class Node:
    """An expression. `op` is an operator's spelling, a function's name, or one of

        const    a number or boolean, `value`
        var      score, b, h, q_idx, kv_idx: `value` is the name
        load     an element of the captured tensor `value`; `args` are the indexes
        each     the position within a vector of `value` elements
        any all sum min max with `value` set: a reduction of args[0] over a vector of `value` elements

    `size` is 0 for a number, or the length of a vector: of an expression in which `each` is free.
    """

    __slots__ = ("op", "args", "type", "value", "size")

    def __init__(self, op: str, args: tuple[Node, ...], type: str, value: Any, size: int):
        self.op = op
        self.args = args
        self.type = type
        self.value = value
        self.size = size

    @property
    def is_reduction(self) -> bool:
        """Whether the node reduces over `each`, rather than combining two operands."""
        return self.op in ("any", "all", "sum", "min", "max") and self.value is not None

    def is_var(self, name: str) -> bool:
        """Whether the node is the variable of this name."""
        return self.op == "var" and self.value == name


def wider(*nodes: Node) -> str:
    """The type of arithmetic with these operands."""
    return max((node.type for node in nodes), key=_RANK.__getitem__)


class Mismatch(Exception):
    """Vectors of different sizes in one expression."""


class Graph:
    """Makes nodes; equal ones only once."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[Any, ...], Node] = {}

    def node(self, op: str, args: tuple[Node, ...], type: str, value: Any = None) -> Node:
        """The node with this operation, operands, type and value: the same object for equal ones."""
        identity = id(value) if op == "load" else repr(value)
        key = (op, tuple(map(id, args)), type, identity)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node(op, args, type, value, _size(op, args, value))
        return found

    def const(self, value: bool | int | float) -> Node:
        """A constant, of the type of the Python value: of a subclass, such as an enumeration, its number alone."""
        if isinstance(value, bool):
            return self.node("const", (), BOOL, value)
        if isinstance(value, int):
            return self.node("const", (), INT, int.__int__(value))
        return self.node("const", (), REAL, float.__float__(value))

    def var(self, name: str) -> Node:
        """A variable: "score", which is a real, or an index."""
        return self.node("var", (), REAL if name == "score" else INT, name)

    def each(self, size: int) -> Node:
        """The index 0 .. size - 1 that a reduction goes over."""
        return self.node("each", (), INT, size)

    def load(self, capture: Any, indexes: tuple[Node, ...]) -> Node:
        """The element of a captured tensor at these indexes, one for each dimension."""
        return self.node("load", indexes, capture.kind, capture)

    def reduce(self, op: str, body: Node) -> Node:
        """The reduction "any", "all", "sum", "min" or "max" of `body` over the index that it depends on. Sums
        of booleans are integers."""
        kind = BOOL if op in ("any", "all") else INT if body.type == BOOL else body.type
        return self.node(op, (body,), kind, body.size)

    def call(self, name: str, *args: Node, type: str = REAL) -> Node:
        """A function of the language with these operands; `type` is that of its value."""
        return self.node(name, args, type)

    def real(self, node: Node) -> Node:
        """The node as a real: itself, or converted."""
        if node.type == REAL:
            return node
        if node.op == "const":
            return self.const(float(node.value))
        return self.call("float", node)

    def negation(self, node: Node) -> Node:
        """The boolean `!node`."""
        if node.op == "const":
            return self.const(not node.value)
        if node.op == "!":
            return node.args[0]
        if node.op in COMPARISONS and all(arg.type != REAL for arg in node.args):  # a NaN is neither
            return self.node(OPPOSITE[node.op], node.args, BOOL)
        return self.node("!", (node,), BOOL)

    def both(self, left: Node, right: Node) -> Node:
        """`left && right`, without operands that are constants."""
        return self._junction("&&", left, right, neutral=True)

    def either(self, left: Node, right: Node) -> Node:
        """`left || right`, without operands that are constants."""
        return self._junction("||", left, right, neutral=False)

    def _junction(self, op: str, left: Node, right: Node, neutral: bool) -> Node:
        for one, other in ((left, right), (right, left)):
            if one.op == "const":
                return other if one.value is neutral else one
        return left if left is right else self.node(op, (left, right), BOOL)


def _size(op: str, args: tuple[Node, ...], value: Any) -> int:
    if op == "each":
        return int(value)
    sizes = sorted({arg.size for arg in args} - {0})
    if len(sizes) > 1:
        raise Mismatch(f"vectors of {sizes[0]} and {sizes[1]} elements meet in one expression")
    closes = op in ("any", "all", "sum", "min", "max") and value is not None
    return 0 if closes or not sizes else sizes[0]


def in_32_bits(value: int) -> int:
    """What 32 bits leave of an integer."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def is_wide(node: Node) -> bool:
    """Whether it is an integer of 64 bits: an element of an int64 tensor, a larger constant than 32 bits hold, or
    computed of one."""
    return _has(node, lambda each: each.op == "long" or each.op == "load" and each.value.dtype == "i64"
                or each.op == "const" and in_32_bits(each.value) != each.value)


def is_of_32_bits(node: Node) -> bool:
    """Whether it is an integer that torch computes in 32 bits or less, whatever indexes have: an element of a
    tensor of such a type, a conversion to one, or computed of one."""
    return not is_wide(node) and _has(node, lambda each: each.op in ("load", "int"))


def _has(node: Node, is_origin: Callable[[Node], bool]) -> bool:
    """Whether an integer is computed of such an integer, without a conversion to 32 bits in between."""
    found: set[int] = set()
    for each in walk([node]):
        integers = () if each.op in ("load", "int") else each.args
        if each.type == INT and (is_origin(each) or any(id(arg) in found for arg in integers)):
            found.add(id(each))
    return id(node) in found


_INDEXED = {"b": "B", "h": "Hq", "q_idx": "Sq", "kv_idx": "Skv"}


def bounds_of(node: Node, sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """The least and the largest value of an integer made of indexes, booleans and constants; None if it is not
    seen."""
    if node.op == "const" and node.type == INT:
        return node.value, node.value
    if node.type == BOOL:
        return 0, 1
    if node.op == "var" and node.value in _INDEXED:
        return 0, sizes[_INDEXED[node.value]] - 1
    if node.op == "sum" and node.type == INT and node.args[0].type == BOOL:
        return 0, node.value
    if node.op not in ("+", "-", "*", "neg", "abs", "//", "%", "where", "int", "long") or node.type != INT:
        return None
    given = [bounds_of(arg, sizes) for arg in node.args]
    if None in given:
        return None
    if node.op in ("int", "long"):
        return given[0]
    if node.op == "where":
        return min(low for low, high in given[1:]), max(high for low, high in given[1:])  # type: ignore[misc]
    if len(given) == 1:
        low, high = given[0]  # type: ignore[misc]
        return (-high, -low) if node.op == "neg" else (0, max(abs(low), abs(high)))
    return _combined(node.op, *given)  # type: ignore[arg-type]


def _combined(op: str, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int] | None:
    if op == "+":
        return left[0] + right[0], left[1] + right[1]
    if op == "-":
        return left[0] - right[1], left[1] - right[0]
    if op == "*":
        products = [x * y for x in left for y in right]
        return min(products), max(products)
    if right[0] <= 0:
        return None
    if op == "%":
        return 0, right[1] - 1
    quotients = [x // y for x in left for y in right]
    return min(quotients), max(quotients)


def is_minus_infinity(node: Node) -> bool:
    """Whether the node is the constant -inf, which hides a score."""
    return node.op == "const" and node.type == REAL and node.value == -math.inf


def walk(roots: list[Node]) -> list[Node]:
    """All nodes below the roots, operands first, each once."""
    found: dict[int, Node] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, operands_done = stack.pop()
        if id(node) in found:
            continue
        if operands_done:
            found[id(node)] = node
            continue
        stack.append((node, True))
        stack.extend((arg, False) for arg in reversed(node.args))
    return list(found.values())
