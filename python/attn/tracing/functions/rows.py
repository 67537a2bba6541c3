"""Elements of captured tensors by their indexes, and of rows the least, the sum and their like."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from attn.tracing.expressions import BOOL, Node
from attn.tracing.functions.conditions import compare
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


@define("embedding")
def _embedding(t: Tracer, index: Any, weight: Any, *ignored: Any, **options: Any) -> Any:
    return _getitem(t, weight, index)


@define("select", "index_select")
def _select(t: Tracer, tensor: Any, dim: int, index: Any) -> Any:
    return _getitem(t, tensor, (slice(None),) * dim + (index,))


@define("take")
def _take(t: Tracer, tensor: Any, index: Any) -> Any:
    if len(tensor.shape) != 1:
        raise refusal("`take` of a tensor with several dimensions", ["index it: `x[i, j]`"])
    return _getitem(t, tensor, index)


def reduce(t: Tracer, name: str, x: Any) -> Node:
    """What a reduction of this name makes of a row."""
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


def _reduction(name: str) -> Callable:
    def apply(t: Tracer, x: Any, dim: Any = None, axis: Any = None, **options: Any) -> Node:
        return reduce(t, name, x)
    return apply


for _name in ("any", "all"):
    define(_name)(_reduction(_name))
