"""Elements of captured tensors by their indexes, sums of rows and their like, and the least and the largest."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from attn.tracing.expressions import BOOL, INT, Node, is_of_32_bits, wider
from attn.tracing.functions.arithmetic import arithmetic
from attn.tracing.functions.conditions import compare, truth
from attn.tracing.functions.conversions import integer
from attn.tracing.functions.table import define, in_place_error
from attn.tracing.places import refusal

if TYPE_CHECKING:
    from attn.tracing.tracer import Tracer

MOST_ELEMENTS = 4096  # that a reduction may have


@define("__getitem__", "getitem")
def _getitem(t: Tracer, tensor: Any, index: Any) -> Any:
    return t.value(tensor)[index]


@define("__setitem__")
def _setitem(t: Tracer, tensor: Any, index: Any, value: Any) -> Any:
    raise in_place_error("__setitem__")


define("embedding")(lambda t, index, weight, *_, **options: _getitem(t, weight, index))
define("select", "index_select")(
    lambda t, tensor, dim, index: _getitem(t, tensor, (slice(None),) * dim + (index,)))


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
        node = compare(t, "!=", t.wrap(node), 0)
    return t.graph.reduce(name, node)


def _reduction(name: str) -> Callable[..., Any]:
    def apply(t: Tracer, x: Any, dim: Any = None, axis: Any = None, **options: Any) -> Node:
        return _reduce(t, name, x)
    return apply


for _name in ("any", "all"):
    define(_name)(_reduction(_name))


def _extremum(name: str) -> Callable[..., Node]:
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


_least, _largest = _extremum("min"), _extremum("max")
define("minimum", "min", "fmin", "amin")(_least)
define("maximum", "max", "fmax", "amax")(_largest)


@define("clamp", "clip", "hardtanh")
def _clamp(t: Tracer, x: Any, min: Any = None, max: Any = None, **options: Any) -> Node:
    low, high = options.get("min_val", min), options.get("max_val", max)
    low, high = options.get("a_min", low), options.get("a_max", high)
    if low is None and high is None:
        raise refusal("`clamp` needs `min` or `max`")
    if high is None:
        return _largest(t, x, low)
    if low is None:
        return _least(t, x, high)
    nodes = t.node(x), t.node(low), t.node(high)
    kind = wider(*nodes)
    return t.graph.call("clamp", *nodes, type=INT if kind == BOOL else kind)


define("clamp_min")(lambda t, x, min: _clamp(t, x, min))
define("clamp_max")(lambda t, x, max: _clamp(t, x, None, max))
define("relu6")(lambda t, x, inplace=False: _clamp(t, x, 0, 6))


@define("sum")
def _sum(t: Tracer, x: Any, dim: Any = None, axis: Any = None, dtype: Any = None, **options: Any) -> Node:
    """The sum of a row; one of integers has 64 bits, as in torch, unless `dtype` says otherwise."""
    if dtype is not None:
        return t.node(t.call("to", t.wrap(_sum(t, t.call("to", x, dtype))), dtype))
    node = t.node(x)
    return _reduce(t, "sum", t.wrap(integer(t, x, "int64")) if is_of_32_bits(node) else x)


@define("mean")
def _mean(t: Tracer, x: Any, dim: Any = None, axis: Any = None, **options: Any) -> Node:
    node = t.node(x)
    if not node.size:
        raise refusal("`mean` of one number: a mod sees one score at a time",
                      ["vectors are rows of captured tensors: `bias[h].mean()`"])
    return arithmetic(t, "/", t.wrap(_reduce(t, "sum", t.wrap(t.graph.real(node)))), node.size)


@define("searchsorted")
def _searchsorted(t: Tracer, bounds: Any, x: Any, right: bool = False, side: str | None = None,
                  **options: Any) -> Node:
    """How many of the bounds, which do not decrease, are below x."""
    op = "<=" if right or side == "right" else "<"
    return _reduce(t, "sum", t.wrap(compare(t, op, bounds, x)))


@define("bucketize", "digitize")
def _bucketize(t: Tracer, x: Any, boundaries: Any, right: bool = False, **options: Any) -> Node:
    return _searchsorted(t, boundaries, x, right)


define("count_nonzero")(lambda t, x: _reduce(t, "sum", t.wrap(truth(t, x))))
define("dot", "inner", "vdot", "matmul")(lambda t, x, y: _reduce(t, "sum", t.wrap(arithmetic(t, "*", x, y))))
define("isin")(lambda t, x, values: _reduce(t, "any", t.wrap(compare(t, "==", x, values))))
