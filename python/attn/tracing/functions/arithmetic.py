"""Operators on numbers, and functions of one number or two."""
from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Callable

from attn.tracing.expressions import BOOL, INT, REAL, Node, wider
from attn.tracing.functions.conditions import compare, where
from attn.tracing.functions.table import define
from attn.tracing.places import refusal
from attn.tracing.words import REAL_FUNCTIONS

if TYPE_CHECKING:
    from attn.tracing.tracer import Tracer

def arithmetic(t: Tracer, op: str, x: Any, y: Any) -> Node:
    """The result of an operator of two numbers."""
    left, right = t.node(x), t.node(y)
    if left.op == right.op == "const":
        return t.constant(_PYTHON[op](left.value, right.value))
    kind = REAL if op == "/" else wider(left, right)
    if kind == BOOL and op != "/":
        if op not in ("+", "*"):
            raise refusal(f"`{op}` of two booleans", ["write `^`, or convert with `.int()`"])
        return t.graph.either(left, right) if op == "+" else t.graph.both(left, right)  # as in torch
    if _is_neutral(op, right, left):
        return left
    if op in "+*" and _is_neutral(op, left, right):
        return right
    return t.graph.node(op, (left, right), kind)


_NEUTRAL = {"+": 0, "-": 0, "*": 1}


def _is_neutral(op: str, node: Node, other: Node) -> bool:
    """Whether `op` with the constant `node` leaves the other operand as it is. + 0.0 changes -0.0."""
    if node.op != "const" or node.type == BOOL or other.type == BOOL or wider(node, other) != other.type:
        return False
    if node.value == 0 and other.type == REAL and (math.copysign(1, node.value) < 0) != (op == "+"):
        return False
    return bool(node.value == _NEUTRAL.get(op))


_PYTHON: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod}


def _with_factor(op: str) -> Callable[..., Any]:
    def apply(t: Tracer, x: Any, y: Any, alpha: Any = 1) -> Node:
        return arithmetic(t, op, x, y if alpha == 1 else t.wrap(arithmetic(t, "*", y, alpha)))
    return apply


define("add")(_with_factor("+"))
define("sub", "subtract")(_with_factor("-"))


def _operator(op: str, reverse: bool = False) -> Callable[..., Any]:
    if reverse:
        return lambda t, x, y: arithmetic(t, op, y, x)
    return lambda t, x, y: arithmetic(t, op, x, y)


for _op, _names in {"*": "mul multiply", "/": "true_divide divide", "//": "floor_divide",
                    "%": "remainder mod"}.items():
    define(*_names.split())(_operator(_op))
for _op, _names in {"-": "rsub", "/": "rdiv", "//": "rfloor_divide", "%": "rremainder"}.items():
    define(*_names.split())(_operator(_op, reverse=True))


@define("div")
def _div(t: Tracer, x: Any, y: Any, rounding_mode: str | None = None) -> Node:
    if rounding_mode is None:
        return arithmetic(t, "/", x, y)
    if rounding_mode == "floor":
        return arithmetic(t, "//", x, y)
    if wider(t.node(x), t.node(y)) == REAL:
        return t.graph.real(t.graph.call("int", arithmetic(t, "/", x, y), type=INT))
    whole = t.call("floor_divide", x, y)
    return where(t, _is_below_zero_with_rest(t, x, y), t.call("add", whole, 1), whole)


@define("lax_div")
def _lax_div(t: Tracer, x: Any, y: Any) -> Node:
    """The quotient as jax.lax.div has it: that of two integers is rounded to 0."""
    return _div(t, x, y, None if REAL in (t.node(x).type, t.node(y).type) else "trunc")


def _is_below_zero_with_rest(t: Tracer, x: Any, y: Any) -> Any:
    """Whether the quotient of two integers is below 0 and not whole: to round it down and to 0 is not the same."""
    signs = (t.wrap(compare(t, "<", each, 0)) for each in (x, y))
    return t.call("logical_and", t.call("ne", t.call("remainder", x, y), 0), t.wrap(compare(t, "!=", *signs)))


@define("fmod")
def _fmod(t: Tracer, x: Any, y: Any) -> Node:
    """The remainder of x by y, with the sign of x."""
    whole = t.node(x).type != REAL and t.node(y).type != REAL
    if whole:
        rest = t.call("remainder", x, y)
        return where(t, _is_below_zero_with_rest(t, x, y), t.call("sub", rest, y), rest)
    return t.node(t.call("sub", x, t.call("mul", y, t.call("trunc", t.call("true_divide", x, y)))))


@define("logaddexp")
def _logaddexp(t: Tracer, x: Any, y: Any) -> Node:
    far = t.call("neg", t.call("abs", t.call("sub", x, y)))
    return t.node(t.call("add", t.call("maximum", x, y), t.call("log1p", t.call("exp", far))))


@define("pow", "power", "float_power")
def _pow(t: Tracer, x: Any, y: Any) -> Node:
    base, exponent = t.node(x), t.node(y)
    if base.op == exponent.op == "const":
        return t.constant(base.value ** exponent.value)
    if REAL in (base.type, exponent.type):
        return t.graph.node("**", (base, exponent), REAL)
    if exponent.op == "const" and exponent.value >= 0:
        return t.graph.node("**", (base, exponent), INT)
    if base.op == "const" and base.value == 2:
        return t.graph.node("<<", (t.graph.const(1), exponent), INT)
    raise refusal("an integer to the power of an integer that is not constant",
                  ["write a real base: `2.0 ** x`, and `.int()` for an integer result"])


define("rpow")(lambda t, x, y: _pow(t, y, x))


@define("neg", "negative")
def _neg(t: Tracer, x: Any) -> Node:
    node = t.node(x)
    if node.op == "const":
        return t.constant(-node.value)
    if node.type == BOOL:
        raise refusal("`-` of a boolean", ["write `~x`"])
    if node.op == "neg":
        return node.args[0]
    return t.graph.call("neg", node, type=node.type)


define("square")(lambda t, x: _pow(t, x, 2))
define("reciprocal")(lambda t, x: arithmetic(t, "/", 1.0, x))


@define("abs", "absolute", "fabs")
def _abs(t: Tracer, x: Any) -> Node:
    node = t.node(x)
    return t.graph.call("abs", node, type=INT if node.type == BOOL else node.type)


@define("sign", "sgn")
def _sign(t: Tracer, x: Any) -> Node:
    node = t.node(x)
    one = 1.0 if node.type == REAL else 1
    return where(t, t.wrap(compare(t, ">", x, 0)), one,
                  t.wrap(where(t, t.wrap(compare(t, "<", x, 0)), -one, 0 * one)))


def _rounding(name: str) -> Callable[..., Any]:
    def apply(t: Tracer, x: Any) -> Node:
        node = t.node(x)
        return t.graph.call(name, node) if node.type == REAL else node
    return apply


for _name in ("floor", "ceil"):
    define(_name)(_rounding(_name))


@define("trunc", "fix")
def _trunc(t: Tracer, x: Any) -> Node:
    node = t.node(x)
    return t.graph.real(t.graph.call("int", node, type=INT)) if node.type == REAL else node


@define("round")
def _round(t: Tracer, x: Any, *, decimals: int = 0) -> Node:
    node = t.node(x)
    if node.type != REAL:
        return node
    raise refusal("`round` cannot be traced", ["write `torch.floor(x + 0.5)`"])


def _real_function(name: str) -> Callable[..., Any]:
    return lambda t, x: t.graph.call(name, t.node(x))


for _name in REAL_FUNCTIONS:
    define(_name)(_real_function(_name))
define("expit")(_real_function("sigmoid"))
define("silu", "swish")(lambda t, x, inplace=False: t.graph.call("silu", t.node(x)))
define("logsigmoid", "log_sigmoid")(lambda t, x: t.graph.call("neg", t.graph.call("softplus", _neg(t, x))))
define("atan2", "arctan2")(lambda t, y, x: t.graph.call("atan2", t.node(y), t.node(x)))


@define("softplus")
def _softplus(t: Tracer, x: Any, beta: Any = 1, threshold: Any = 20) -> Node:
    if beta != 1:
        raise refusal("`softplus` with `beta` cannot be traced", ["write `softplus(beta * x) / beta`"])
    return t.graph.call("softplus", t.node(x))


@define("relu")
def _relu(t: Tracer, x: Any, inplace: bool = False) -> Node:
    node = t.node(x)
    return t.graph.call("relu", node, type=INT if node.type == BOOL else node.type)


@define("leaky_relu")
def _leaky_relu(t: Tracer, x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Node:
    slope = t.wrap(arithmetic(t, "*", negative_slope, x))
    return where(t, t.wrap(compare(t, ">", x, 0)), x, slope)


@define("elu")
def _elu(t: Tracer, x: Any, alpha: float = 1.0, inplace: bool = False) -> Node:
    below = t.wrap(arithmetic(t, "*", alpha, t.wrap(t.graph.call("expm1", t.node(x)))))
    return where(t, t.wrap(compare(t, ">", x, 0)), x, below)


@define("gelu")
def _gelu(t: Tracer, x: Any, approximate: str = "none") -> Node:
    if approximate == "none":
        return t.graph.call("gelu", t.node(x))
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)
    tanh: Any = t.wrap(t.graph.call("tanh", t.node(inner)))
    return t.node(0.5 * x * (1 + tanh))


@define("lerp")
def _lerp(t: Tracer, x: Any, end: Any, weight: Any) -> Node:
    return t.node(t.call("add", x, t.call("mul", weight, t.call("sub", end, x))))
