"""Comparisons, conditions and bits."""
from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Callable

from attn.tracing.expressions import BOOL, INT, REAL, Node, wider
from attn.tracing.functions.table import define
from attn.tracing.places import refusal

if TYPE_CHECKING:
    from attn.tracing.tracer import Tracer

_PYTHON: dict[str, Callable[..., Any]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
                                "==": operator.eq, "!=": operator.ne}


def compare(t: Tracer, op: str, x: Any, y: Any) -> Node:
    """Whether an operator of comparison holds."""
    left, right = t.node(x), t.node(y)
    if left.op == right.op == "const":
        return t.constant(_PYTHON[op](left.value, right.value))
    if left.type == BOOL and op in ("==", "!=") and right.op == "const" and right.value in (0, 1):
        return left if (op == "==") == bool(right.value) else t.graph.negation(left)
    return t.graph.node(op, (left, right), BOOL)


def _comparison(op: str) -> Callable[..., Any]:
    return lambda t, x, y: compare(t, op, x, y)


for _op, _names in {"<": "lt less", "<=": "le less_equal", ">": "gt greater", ">=": "ge greater_equal",
                    "==": "eq equal", "!=": "ne not_equal"}.items():
    define(*_names.split())(_comparison(_op))


def _condition(t: Tracer, x: Any, what: str) -> Node:
    node = t.node(x)
    if node.type != BOOL:
        kind = "an integer" if node.type == INT else "a real number"
        raise refusal(f"{what} is {kind}, where a condition is needed", ["write `x != 0`"])
    return node


def truth(t: Tracer, x: Any) -> Node:
    """Whether a value is not 0."""
    node = t.node(x)
    return node if node.type == BOOL else compare(t, "!=", x, 0)


@define("where")
def where(t: Tracer, condition: Any, x: Any, y: Any) -> Node:
    """x where the condition holds, else y."""
    test, yes, no = _condition(t, condition, "the first argument of `where`"), t.node(x), t.node(y)
    if test.op == "const":
        return yes if test.value else no
    kind = wider(yes, no)
    if kind == BOOL and yes.op == "const":
        return t.graph.either(test, no) if yes.value else t.graph.both(t.graph.negation(test), no)
    if kind == BOOL and no.op == "const":
        return t.graph.either(t.graph.negation(test), yes) if no.value else t.graph.both(test, yes)
    if yes.op == "const" and kind == REAL:
        yes = t.graph.real(yes)
    if no.op == "const" and kind == REAL:
        no = t.graph.real(no)
    return t.graph.call("where", test, yes, no, type=kind)


define("masked_fill")(lambda t, x, mask, value: where(t, mask, value, x))


def _bits(t: Tracer, op: str, x: Any, y: Any) -> Node:
    left, right = t.node(x), t.node(y)
    if wider(left, right) == REAL:
        raise refusal(f"`{op}` of a real number", ["a mask is a condition: write `x != 0` or `x > 0`"])
    if left.type == right.type == BOOL:
        if op == "&":
            return t.graph.both(left, right)
        return t.graph.either(left, right) if op == "|" else t.graph.node("^", (left, right), BOOL)
    left, right = (t.graph.call("int", node, type=INT) if node.type == BOOL else node
                   for node in (left, right))
    return t.graph.node(op, (left, right), INT)


def _bit_operator(op: str) -> Callable[..., Any]:
    return lambda t, x, y: _bits(t, op, x, y)


for _op, _name in {"&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor"}.items():
    define(_name)(_bit_operator(_op))


define("logical_and")(lambda t, x, y: t.graph.both(truth(t, x), truth(t, y)))
define("logical_or")(lambda t, x, y: t.graph.either(truth(t, x), truth(t, y)))
define("logical_xor")(lambda t, x, y: t.graph.node("^", (truth(t, x), truth(t, y)), BOOL))
define("logical_not")(lambda t, x: t.graph.negation(truth(t, x)))


@define("bitwise_not", "invert")
def _invert(t: Tracer, x: Any) -> Node:
    node = t.node(x)
    if node.type == BOOL:
        return t.graph.negation(node)
    if node.type == REAL:
        raise refusal("`~` of a real number", ["write `x == 0`"])
    return t.graph.call("~", node, type=INT)


def _shift(op: str, reverse: bool = False) -> Callable[..., Any]:
    def apply(t: Tracer, x: Any, y: Any) -> Node:
        left, right = (t.node(y), t.node(x)) if reverse else (t.node(x), t.node(y))
        if left.type != INT or right.type != INT:
            raise refusal(f"`{op}` needs integers")
        return t.graph.node(op, (left, right), INT)
    return apply


define("bitwise_left_shift", "left_shift")(_shift("<<"))
define("bitwise_right_shift", "right_shift")(_shift(">>"))
define("rlshift")(_shift("<<", reverse=True))
define("rrshift")(_shift(">>", reverse=True))


define("isnan")(lambda t, x: t.graph.call("isnan", t.node(x), type=BOOL))
define("isneginf")(lambda t, x: compare(t, "==", x, -math.inf))


@define("isinf")
def _isinf(t: Tracer, x: Any) -> Node:
    return t.graph.node("==", (t.graph.call("abs", t.node(x)), t.graph.const(math.inf)), BOOL)
