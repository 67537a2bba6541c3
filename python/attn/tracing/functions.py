"""Functions and methods of torch and NumPy, in terms of the language's.

A function is found by its name alone: torch.tanh, Tensor.tanh, numpy.tanh and torch.ops.aten.tanh are one.
Each takes the tracer and what the mod gave, and returns an expression.
"""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable

from attn.errors import TraceError
from attn.tracing.expressions import BOOL, INT, REAL, Node, in_32_bits, is_of_32_bits, is_wide, wider
from attn.tracing.places import refusal

if TYPE_CHECKING:
    from attn.tracing.values import Tracer

_TABLE: dict[str, Callable] = {}
MOST_ELEMENTS = 4096  # that a reduction may have

_RANDOM = ("rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal", "poisson",
           "rand_like", "randn_like", "randint_like", "dropout", "alpha_dropout", "feature_dropout")
READS_VALUES = ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__complex__",
                "__contains__", "equal", "allclose", "is_nonzero", "__array__")
_OF_ROWS = ("softmax", "log_softmax", "logsumexp", "cumsum", "cumprod", "sort", "argsort", "topk",
            "argmax", "argmin", "std", "var", "median", "norm", "prod")
_INSTEAD = {
    "item": "the mod is traced for all scores at once: compute with the value itself",
    "tolist": "the mod is traced for all scores at once: compute with the value itself",
    "numpy": "the mod is traced for all scores at once: compute with the value itself",
    "stack": "scores are computed one by one, so write an expression for one score",
    "cat": "scores are computed one by one, so write an expression for one score",
    "nonzero": "write a condition",
    "tensor": "compute with the value itself",
    "detach": "detach the captured tensor outside of the mod",
}


def define(*names: str) -> Callable:
    """Decorates the function that traces operations of these names, as PyTorch and Python call them."""

    def register(function: Callable) -> Callable:
        for name in names:
            _TABLE[name] = function
        return function
    return register


def find(name: str) -> Callable | None:
    """The function that traces the operation of this name, or None."""
    return _TABLE.get(name)


def name_of(func: Any) -> str:
    """"add" for torch.add, Tensor.add, Tensor.__add__ and torch.ops.aten.add.Tensor."""
    schema = getattr(func, "_schema", None)
    name = schema.name.split("::")[-1] if schema else getattr(func, "__name__", str(func))
    if name.startswith("__") and name.endswith("__"):
        return _DUNDER.get(name, name)
    return name.removeprefix("special_")


_DUNDER = {
    "__or__": "bitwise_or", "__and__": "bitwise_and", "__xor__": "bitwise_xor", "__invert__": "bitwise_not",
    "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift", "__floordiv__": "floor_divide",
    "__mod__": "remainder", "__pow__": "pow", "__truediv__": "true_divide", "__matmul__": "dot",
    "__add__": "add", "__sub__": "sub", "__mul__": "mul", "__neg__": "neg", "__eq__": "eq", "__ne__": "ne",
    "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__abs__": "abs", "__rsub__": "rsub",
    "__rpow__": "rpow", "__radd__": "add", "__rmul__": "mul", "__rmod__": "rremainder",
    "__rtruediv__": "rdiv", "__rdiv__": "rdiv", "__rfloordiv__": "rfloor_divide",
    "__rlshift__": "rlshift", "__rrshift__": "rrshift",
    "__ror__": "bitwise_or", "__rand__": "bitwise_and", "__rxor__": "bitwise_xor",
}


def is_random(name: str) -> bool:
    """Whether the operation of this name draws random numbers."""
    return name in _RANDOM


def is_in_place(name: str) -> bool:
    """Whether the operation of this name writes to its operand."""
    return name.endswith("_") and not name.endswith("__") or name == "__setitem__" or (
        name.startswith("__i") and name.endswith("__") and name[3:-2] in (
            "add", "sub", "mul", "truediv", "and", "or", "xor", "div"))


def random_error() -> TraceError:
    """The error of a mod that draws random numbers."""
    return refusal("a mod cannot draw random numbers",
                   ["random dropout is an option: dropout=0.1, or dropout_p in attn.torch",
                    "or capture a tensor that holds the numbers"])


def in_place_error(name: str) -> TraceError:
    """The error of a mod that writes to a tensor by the operation of this name."""
    notes = ["write `torch.where(condition, new, old)`"]
    if name.endswith("_") and not name.endswith("__"):
        notes = [f"write `x = x.{name[:-1]}(..)`"]
    return refusal(f"a mod cannot write to tensors (`{name}`)", notes)


def reading_error(name: str) -> TraceError:
    """The error of a mod that reads the value of the captured tensor of this name."""
    return refusal(f"the mod reads the value of the captured tensor `{name}`,"
                   " which would be fixed in the spec", ["compute with the tensor, or capture a number"])


def unknown(name: str) -> TraceError:
    """The error of an operation that cannot be traced, with what to write instead if that is known."""
    if is_random(name):
        return random_error()
    if is_in_place(name):
        return in_place_error(name)
    if name in _OF_ROWS:
        return refusal(f"`{name}` needs more than one score, a mod sees one at a time",
                       ["a softmax always follows the mod"])
    return refusal(f"`{name}` cannot be traced",
                   [_INSTEAD.get(name, "docs/language.md lists the functions of a spec")])


# --- arithmetic


def _arithmetic(t: Tracer, op: str, x: Any, y: Any) -> Node:
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
    return node.value == _NEUTRAL.get(op)


_PYTHON: dict[str, Callable] = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y, "/": lambda x, y: x / y,
    "//": lambda x, y: x // y, "%": lambda x, y: x % y, "<": lambda x, y: x < y, "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y, ">=": lambda x, y: x >= y, "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
}


@define("add")
def _add(t: Tracer, x: Any, y: Any, alpha: Any = 1) -> Node:
    return _arithmetic(t, "+", x, y if alpha == 1 else t.wrap(_arithmetic(t, "*", y, alpha)))


@define("sub", "subtract")
def _sub(t: Tracer, x: Any, y: Any, alpha: Any = 1) -> Node:
    return _arithmetic(t, "-", x, y if alpha == 1 else t.wrap(_arithmetic(t, "*", y, alpha)))


def _operator(op: str, reverse: bool = False) -> Callable:
    if reverse:
        return lambda t, x, y: _arithmetic(t, op, y, x)
    return lambda t, x, y: _arithmetic(t, op, x, y)


for _op, _names in {"*": "mul multiply", "/": "true_divide divide", "//": "floor_divide",
                    "%": "remainder mod"}.items():
    define(*_names.split())(_operator(_op))
for _op, _names in {"-": "rsub", "/": "rdiv", "//": "rfloor_divide", "%": "rremainder"}.items():
    define(*_names.split())(_operator(_op, reverse=True))


@define("div")
def _div(t: Tracer, x: Any, y: Any, rounding_mode: str | None = None) -> Node:
    if rounding_mode is None:
        return _arithmetic(t, "/", x, y)
    if rounding_mode == "floor":
        return _arithmetic(t, "//", x, y)
    if wider(t.node(x), t.node(y)) == REAL:
        return t.graph.real(t.graph.call("int", _arithmetic(t, "/", x, y), type=INT))
    whole = t.call("floor_divide", x, y)
    return _where(t, _is_below_zero_with_rest(t, x, y), t.call("add", whole, 1), whole)


def _is_below_zero_with_rest(t: Tracer, x: Any, y: Any) -> Any:
    """Whether the quotient of two integers is below 0 and not whole: to round it down and to 0 is not the same."""
    signs = (t.wrap(_compare(t, "<", each, 0)) for each in (x, y))
    return t.call("logical_and", t.call("ne", t.call("remainder", x, y), 0), t.wrap(_compare(t, "!=", *signs)))


@define("fmod")
def _fmod(t: Tracer, x: Any, y: Any) -> Node:
    """The remainder of x by y, with the sign of x."""
    whole = t.node(x).type != REAL and t.node(y).type != REAL
    if whole:
        rest = t.call("remainder", x, y)
        return _where(t, _is_below_zero_with_rest(t, x, y), t.call("sub", rest, y), rest)
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


@define("rpow")
def _rpow(t: Tracer, x: Any, y: Any) -> Node:
    return _pow(t, y, x)


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


@define("positive", "clone", "contiguous", "squeeze", "conj", "alias", "cpu", "cuda", "expand_as")
def _same(t: Tracer, x: Any, *ignored: Any, **options: Any) -> Node:
    return t.node(x)


@define("unsqueeze")
def _unsqueeze(t: Tracer, x: Any, dim: int) -> Node:
    """One score next to a vector is broadcast anyhow."""
    node = t.node(x)
    if node.size:
        raise refusal("`unsqueeze` of a vector cannot be traced", ["reduce it with `.any()` or `.sum()`"])
    return node


@define("detach")
def _detach(t: Tracer, x: Any) -> Node:
    node = t.node(x)
    if node.type == REAL:
        raise refusal(
            "`detach` of a real value: gradients cannot be stopped within a mod", [_INSTEAD["detach"]])
    return node


@define("square")
def _square(t: Tracer, x: Any) -> Node:
    return _pow(t, x, 2)


@define("reciprocal")
def _reciprocal(t: Tracer, x: Any) -> Node:
    return _arithmetic(t, "/", 1.0, x)


@define("abs", "absolute", "fabs")
def _abs(t: Tracer, x: Any) -> Node:
    node = t.node(x)
    return t.graph.call("abs", node, type=INT if node.type == BOOL else node.type)


@define("sign", "sgn")
def _sign(t: Tracer, x: Any) -> Node:
    node = t.node(x)
    one = 1.0 if node.type == REAL else 1
    return _where(t, t.wrap(_compare(t, ">", x, 0)), one,
                  t.wrap(_where(t, t.wrap(_compare(t, "<", x, 0)), -one, 0 * one)))


def _rounding(name: str) -> Callable:
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


def _real_function(name: str) -> Callable:
    return lambda t, x: t.graph.call(name, t.node(x))


for _name in ("exp exp2 log log2 sqrt rsqrt tanh sigmoid erf sin cos tan log1p expm1").split():
    define(_name)(_real_function(_name))
define("expit")(_real_function("sigmoid"))


@define("softplus")
def _softplus(t: Tracer, x: Any, beta: Any = 1, threshold: Any = 20) -> Node:
    if beta != 1:
        raise refusal("`softplus` with `beta` cannot be traced", ["write `softplus(beta * x) / beta`"])
    return t.graph.call("softplus", t.node(x))


@define("silu", "swish")
def _silu(t: Tracer, x: Any, inplace: bool = False) -> Node:
    return t.graph.call("silu", t.node(x))


@define("relu")
def _relu(t: Tracer, x: Any, inplace: bool = False) -> Node:
    node = t.node(x)
    return t.graph.call("relu", node, type=INT if node.type == BOOL else node.type)


@define("relu6")
def _relu6(t: Tracer, x: Any, inplace: bool = False) -> Node:
    return _clamp(t, x, 0, 6)


@define("leaky_relu")
def _leaky_relu(t: Tracer, x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Node:
    slope = t.wrap(_arithmetic(t, "*", negative_slope, x))
    return _where(t, t.wrap(_compare(t, ">", x, 0)), x, slope)


@define("elu")
def _elu(t: Tracer, x: Any, alpha: float = 1.0, inplace: bool = False) -> Node:
    below = t.wrap(_arithmetic(t, "*", alpha, t.wrap(t.graph.call("expm1", t.node(x)))))
    return _where(t, t.wrap(_compare(t, ">", x, 0)), x, below)


@define("logsigmoid", "log_sigmoid")
def _logsigmoid(t: Tracer, x: Any) -> Node:
    return t.graph.call("neg", t.graph.call("softplus", _neg(t, x)))


@define("gelu")
def _gelu(t: Tracer, x: Any, approximate: str = "none") -> Node:
    if approximate == "none":
        return t.graph.call("gelu", t.node(x))
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)
    return t.node(0.5 * x * (1 + t.wrap(t.graph.call("tanh", t.node(inner)))))


@define("atan2", "arctan2")
def _atan2(t: Tracer, y: Any, x: Any) -> Node:
    return t.graph.call("atan2", t.node(y), t.node(x))


def _extremum(name: str) -> Callable:
    def apply(t: Tracer, x: Any, y: Any = None) -> Node:
        if y is None:
            return _reduce(t, name, x)
        left, right = t.node(x), t.node(y)
        if left.op == right.op == "const":
            return t.constant((min if name == "min" else max)(left.value, right.value))
        kind = wider(left, right)
        if kind == BOOL:
            return (t.graph.both if name == "min" else t.graph.either)(left, right)
        return t.graph.call(name, left, right, type=kind)
    return apply


define("minimum", "min", "fmin", "amin")(_extremum("min"))
define("maximum", "max", "fmax", "amax")(_extremum("max"))


@define("clamp", "clip", "hardtanh")
def _clamp(t: Tracer, x: Any, min: Any = None, max: Any = None, **options: Any) -> Node:
    low, high = options.get("min_val", min), options.get("max_val", max)
    low, high = options.get("a_min", low), options.get("a_max", high)
    if low is None and high is None:
        raise refusal("`clamp` needs `min` or `max`")
    if high is None:
        return _TABLE["maximum"](t, x, low)
    if low is None:
        return _TABLE["minimum"](t, x, high)
    nodes = t.node(x), t.node(low), t.node(high)
    kind = wider(*nodes)
    return t.graph.call("clamp", *nodes, type=INT if kind == BOOL else kind)


@define("clamp_min")
def _clamp_min(t: Tracer, x: Any, min: Any) -> Node:
    return _clamp(t, x, min, None)


@define("clamp_max")
def _clamp_max(t: Tracer, x: Any, max: Any) -> Node:
    return _clamp(t, x, None, max)


@define("lerp")
def _lerp(t: Tracer, x: Any, end: Any, weight: Any) -> Node:
    return t.node(t.call("add", x, t.call("mul", weight, t.call("sub", end, x))))


# --- conditions


def _compare(t: Tracer, op: str, x: Any, y: Any) -> Node:
    left, right = t.node(x), t.node(y)
    if left.op == right.op == "const":
        return t.constant(_PYTHON[op](left.value, right.value))
    if left.type == BOOL and op in ("==", "!=") and right.op == "const" and right.value in (0, 1):
        return left if (op == "==") == bool(right.value) else t.graph.negation(left)
    return t.graph.node(op, (left, right), BOOL)


def _comparison(op: str) -> Callable:
    return lambda t, x, y: _compare(t, op, x, y)


for _op, _names in {"<": "lt less", "<=": "le less_equal", ">": "gt greater", ">=": "ge greater_equal",
                    "==": "eq equal", "!=": "ne not_equal"}.items():
    define(*_names.split())(_comparison(_op))


def _condition(t: Tracer, x: Any, what: str) -> Node:
    node = t.node(x)
    if node.type != BOOL:
        kind = "an integer" if node.type == INT else "a real number"
        raise refusal(f"{what} is {kind}, where a condition is needed", ["write `x != 0`"])
    return node


def _truth(t: Tracer, x: Any) -> Node:
    node = t.node(x)
    return node if node.type == BOOL else _compare(t, "!=", x, 0)


@define("where")
def _where(t: Tracer, condition: Any, x: Any, y: Any) -> Node:
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


@define("masked_fill")
def _masked_fill(t: Tracer, x: Any, mask: Any, value: Any) -> Node:
    return _where(t, mask, value, x)


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


def _bit_operator(op: str) -> Callable:
    return lambda t, x, y: _bits(t, op, x, y)


for _op, _name in {"&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor"}.items():
    define(_name)(_bit_operator(_op))


@define("logical_and")
def _logical_and(t: Tracer, x: Any, y: Any) -> Node:
    return t.graph.both(_truth(t, x), _truth(t, y))


@define("logical_or")
def _logical_or(t: Tracer, x: Any, y: Any) -> Node:
    return t.graph.either(_truth(t, x), _truth(t, y))


@define("logical_xor")
def _logical_xor(t: Tracer, x: Any, y: Any) -> Node:
    return t.graph.node("^", (_truth(t, x), _truth(t, y)), BOOL)


@define("logical_not")
def _logical_not(t: Tracer, x: Any) -> Node:
    return t.graph.negation(_truth(t, x))


@define("bitwise_not", "invert")
def _invert(t: Tracer, x: Any) -> Node:
    node = t.node(x)
    if node.type == BOOL:
        return t.graph.negation(node)
    if node.type == REAL:
        raise refusal("`~` of a real number", ["write `x == 0`"])
    return t.graph.call("~", node, type=INT)


def _shift(op: str, reverse: bool = False) -> Callable:
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


@define("isnan")
def _isnan(t: Tracer, x: Any) -> Node:
    return t.graph.call("isnan", t.node(x), type=BOOL)


@define("isinf")
def _isinf(t: Tracer, x: Any) -> Node:
    return t.graph.node("==", (t.graph.call("abs", t.node(x)), t.graph.const(math.inf)), BOOL)


@define("isneginf")
def _isneginf(t: Tracer, x: Any) -> Node:
    return _compare(t, "==", x, -math.inf)


@define("isin")
def _isin(t: Tracer, x: Any, values: Any) -> Node:
    return _reduce(t, "any", t.wrap(_compare(t, "==", x, values)))


# --- conversions and constants


@define("to", "type", "_to_copy", "astype")
def _to(t: Tracer, x: Any, *targets: Any, dtype: Any = None, **options: Any) -> Node:
    for target in (dtype, *targets):
        kind = _kind_of(target)
        if kind == INT:
            return _integer(t, x, target)
        if kind:
            return _rounded(t, x, target) if kind == REAL else _convert(t, x, kind)
    return t.node(x)


@define("type_as")
def _type_as(t: Tracer, x: Any, other: Any) -> Node:
    return _to(t, x, other.dtype)


def _kind_of(dtype: Any) -> str:
    """The type of a dtype, or "" if it is something else, such as a device."""
    spelling = str(getattr(dtype, "dtype", dtype)).removeprefix("torch.")
    spelling = getattr(dtype, "__name__", spelling)
    if spelling.startswith("bool"):
        return BOOL
    if spelling.startswith(("int", "uint", "long")):
        return INT
    return REAL if spelling.startswith(("float", "bfloat", "double", "half")) else ""


def _convert(t: Tracer, x: Any, kind: str) -> Node:
    node = t.node(x)
    if node.type == kind:
        return node
    if node.op == "const":
        return t.constant({BOOL: bool, INT: int, REAL: float}[kind](node.value))
    if kind == BOOL:
        return _compare(t, "!=", x, 0)
    return t.graph.real(node) if kind == REAL else t.graph.call("int", node, type=INT)


def _integer(t: Tracer, x: Any, target: Any) -> Node:
    """A conversion to integers of 64 bits, or of 32, which wraps; narrower ones wrap afterwards."""
    if target is int:  # Python's, which has 64 bits in NumPy and torch
        target = "int64"
    node, name = _convert(t, x, INT), str(getattr(target, "__name__", target)).removeprefix("torch.")
    if name in ("uint32", "uint64"):
        raise refusal(f"specs have no integers of type {name}", ["write `.long()`, which has 64 bits"])
    if node.op == "const":
        return node if name in ("int64", "long") else t.constant(in_32_bits(node.value))
    if name in ("int64", "long"):
        return node if is_wide(node) else t.graph.call("long", node, type=INT)
    return t.graph.call("int", node, type=INT) if is_wide(node) else node


def _conversion(kind: str) -> Callable:
    return lambda t, x, *ignored: _convert(t, x, kind)


define("bool")(_conversion(BOOL))
define("int", "short", "char", "byte")(lambda t, x, *ignored: _integer(t, x, "int"))
define("long")(lambda t, x, *ignored: _integer(t, x, "long"))
define("float", "double")(_conversion(REAL))


_EXACT_INTEGERS = {"float16": 2048, "half": 2048, "bfloat16": 256}  # the largest of those without gaps
_MOST_ROUNDED = 1 << 20


def _rounded(t: Tracer, x: Any, target: Any) -> Node:
    """A conversion to a type of reals, which rounds integers. Scores are computed with the precision of
    kernels, whatever their type in the mod is."""
    node, name = t.node(x), str(getattr(target, "__name__", target)).removeprefix("torch.")
    if node.type != INT or name not in _EXACT_INTEGERS:
        return _convert(t, x, REAL)
    bounds = t.bounds(node)
    if bounds is not None and max(map(abs, bounds)) <= _EXACT_INTEGERS[name]:
        return _convert(t, x, REAL)
    if bounds is None or bounds[1] - bounds[0] >= _MOST_ROUNDED:
        raise refusal(f"`{name}` would round an integer of unknown size",
                      ["write `.float()`, which is exact here"])
    return t.rounded(node, bounds, "float16" if name == "half" else name)


define("half")(lambda t, x, *ignored: _rounded(t, x, "half"))
define("bfloat16")(lambda t, x, *ignored: _rounded(t, x, "bfloat16"))


def _filled(t: Tracer, value: Any, size: Any, dtype: Any, like: Any) -> Node:
    if isinstance(size, int):
        size = (size,)
    if any(extent != 1 for extent in size):
        raise refusal("a tensor made within a mod has one element, for one score", ["write the number"])
    return _convert(t, t.wrap(t.node(value)), _kind_of(dtype) or t.node(like).type)


def _new(value: int) -> Callable:
    def apply(t: Tracer, x: Any, *size: Any, dtype: Any = None, **options: Any) -> Node:
        return _filled(t, value, options.get("size", size[0] if len(size) == 1 else size), dtype, x)
    return apply


def _like(value: int) -> Callable:
    return lambda t, x, dtype=None, **options: _filled(t, value, (), dtype, x)


define("new_ones")(_new(1))
define("new_zeros")(_new(0))
define("ones_like")(_like(1))
define("zeros_like")(_like(0))


@define("new_full")
def _new_full(t: Tracer, x: Any, size: Any, fill_value: Any, dtype: Any = None, **options: Any) -> Node:
    return _filled(t, fill_value, size, dtype, x)


@define("full")
def _full(t: Tracer, size: Any, fill_value: Any, dtype: Any = None, **options: Any) -> Node:
    return _filled(t, fill_value, size, dtype, fill_value)


@define("full_like")
def _full_like(t: Tracer, x: Any, fill_value: Any, dtype: Any = None, **options: Any) -> Node:
    return _filled(t, fill_value, (), dtype, x)


@define("new_tensor", "scalar_tensor")
def _new_tensor(t: Tracer, x: Any, data: Any = None, **options: Any) -> Node:
    return t.node(x if data is None else data)


# --- captured tensors


@define("__getitem__", "getitem")
def _getitem(t: Tracer, tensor: Any, index: Any) -> Any:
    return t.value(tensor)[index]


@define("__setitem__")
def _setitem(t: Tracer, tensor: Any, index: Any, value: Any) -> Any:
    raise in_place_error("__setitem__")


@define("embedding")
def _embedding(t: Tracer, index: Any, weight: Any, *ignored: Any, **options: Any) -> Any:
    return _getitem(t, weight, index)


@define("select")
def _select(t: Tracer, tensor: Any, dim: int, index: Any) -> Any:
    return _getitem(t, tensor, (slice(None),) * dim + (index,))


@define("index_select")
def _index_select(t: Tracer, tensor: Any, dim: int, index: Any) -> Any:
    return _select(t, tensor, dim, index)


@define("take")
def _take(t: Tracer, tensor: Any, index: Any) -> Any:
    if len(tensor.shape) != 1:
        raise refusal("`take` of a tensor with several dimensions", ["index it: `x[i, j]`"])
    return _getitem(t, tensor, index)


def _reduce(t: Tracer, name: str, x: Any) -> Node:
    node = t.node(x)
    if not node.size:
        raise refusal(f"`{name}` of one number: a mod sees one score at a time",
                      ["vectors are rows of captured tensors: `(offsets <= q_idx).sum()`"])
    if node.size > MOST_ELEMENTS:
        raise refusal(f"`{name}` over {node.size} elements; at most {MOST_ELEMENTS} are possible",
                      ["compute a table before the mod and index it"])
    if name in ("any", "all") and node.type != BOOL:
        node = _compare(t, "!=", t.wrap(node), 0)
    return t.graph.reduce(name, node)


def _reduction(name: str) -> Callable:
    def apply(t: Tracer, x: Any, dim: Any = None, axis: Any = None, **options: Any) -> Node:
        return _reduce(t, name, x)
    return apply


for _name in ("any", "all"):
    define(_name)(_reduction(_name))


@define("sum")
def _sum(t: Tracer, x: Any, dim: Any = None, axis: Any = None, dtype: Any = None, **options: Any) -> Node:
    """The sum of a row; one of integers has 64 bits, as in torch, unless `dtype` says otherwise."""
    if dtype is not None:
        return t.node(t.call("to", t.wrap(_sum(t, t.call("to", x, dtype))), dtype))
    node = t.node(x)
    return _reduce(t, "sum", t.wrap(_integer(t, x, "int64")) if is_of_32_bits(node) else x)


@define("mean")
def _mean(t: Tracer, x: Any, dim: Any = None, axis: Any = None, **options: Any) -> Node:
    node = t.node(x)
    if not node.size:
        raise refusal("`mean` of one number: a mod sees one score at a time",
                      ["vectors are rows of captured tensors: `bias[h].mean()`"])
    return _arithmetic(t, "/", t.wrap(_reduce(t, "sum", t.wrap(t.graph.real(node)))), node.size)


@define("searchsorted")
def _searchsorted(t: Tracer, bounds: Any, x: Any, right: bool = False, side: str | None = None,
                  **options: Any) -> Node:
    """How many of the bounds, which do not decrease, are below x."""
    op = "<=" if right or side == "right" else "<"
    return _reduce(t, "sum", t.wrap(_compare(t, op, bounds, x)))


@define("bucketize", "digitize")
def _bucketize(t: Tracer, x: Any, boundaries: Any, right: bool = False, **options: Any) -> Node:
    return _searchsorted(t, boundaries, x, right)


@define("count_nonzero")
def _count_nonzero(t: Tracer, x: Any) -> Node:
    return _reduce(t, "sum", t.wrap(_truth(t, x)))


@define("dot", "inner", "vdot", "matmul")
def _dot(t: Tracer, x: Any, y: Any) -> Node:
    return _reduce(t, "sum", t.wrap(_arithmetic(t, "*", x, y)))

