"""Sums and counts of the elements of rows."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn.tracing.expressions import Node, is_of_32_bits
from attn.tracing.functions.arithmetic import arithmetic
from attn.tracing.functions.conditions import compare, truth
from attn.tracing.functions.conversions import integer
from attn.tracing.functions.rows import reduce
from attn.tracing.functions.table import define
from attn.tracing.places import refusal

if TYPE_CHECKING:
    from attn.tracing.tracer import Tracer


@define("sum")
def _sum(t: Tracer, x: Any, dim: Any = None, axis: Any = None, dtype: Any = None, **options: Any) -> Node:
    """The sum of a row; one of integers has 64 bits, as in torch, unless `dtype` says otherwise."""
    if dtype is not None:
        return t.node(t.call("to", t.wrap(_sum(t, t.call("to", x, dtype))), dtype))
    node = t.node(x)
    return reduce(t, "sum", t.wrap(integer(t, x, "int64")) if is_of_32_bits(node) else x)


@define("mean")
def _mean(t: Tracer, x: Any, dim: Any = None, axis: Any = None, **options: Any) -> Node:
    node = t.node(x)
    if not node.size:
        raise refusal("`mean` of one number: a mod sees one score at a time",
                      ["vectors are rows of captured tensors: `bias[h].mean()`"])
    return arithmetic(t, "/", t.wrap(reduce(t, "sum", t.wrap(t.graph.real(node)))), node.size)


@define("searchsorted")
def _searchsorted(t: Tracer, bounds: Any, x: Any, right: bool = False, side: str | None = None,
                  **options: Any) -> Node:
    """How many of the bounds, which do not decrease, are below x."""
    op = "<=" if right or side == "right" else "<"
    return reduce(t, "sum", t.wrap(compare(t, op, bounds, x)))


@define("bucketize", "digitize")
def _bucketize(t: Tracer, x: Any, boundaries: Any, right: bool = False, **options: Any) -> Node:
    return _searchsorted(t, boundaries, x, right)


@define("count_nonzero")
def _count_nonzero(t: Tracer, x: Any) -> Node:
    return reduce(t, "sum", t.wrap(truth(t, x)))


@define("dot", "inner", "vdot", "matmul")
def _dot(t: Tracer, x: Any, y: Any) -> Node:
    return reduce(t, "sum", t.wrap(arithmetic(t, "*", x, y)))


@define("isin")
def _isin(t: Tracer, x: Any, values: Any) -> Node:
    return reduce(t, "any", t.wrap(compare(t, "==", x, values)))
