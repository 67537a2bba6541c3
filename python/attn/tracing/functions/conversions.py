"""Conversions, constants, and what leaves a value as it is."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from attn.tracing.expressions import BOOL, INT, REAL, Node, in_32_bits, is_wide
from attn.tracing.functions.conditions import compare
from attn.tracing.functions.table import define
from attn.tracing.places import refusal

if TYPE_CHECKING:
    from attn.tracing.tracer import Tracer


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
        raise refusal("`detach` of a real value: gradients cannot be stopped within a mod",
                      ["detach the captured tensor outside of the mod"])
    return node


@define("to", "type", "_to_copy", "astype")
def _to(t: Tracer, x: Any, *targets: Any, dtype: Any = None, **options: Any) -> Node:
    for target in (dtype, *targets):
        kind = _kind_of(target)
        if kind == INT:
            return integer(t, x, target)
        if kind:
            return _rounded(t, x, target) if kind == REAL else convert(t, x, kind)
    return t.node(x)


define("type_as")(lambda t, x, other: _to(t, x, other.dtype))


def _kind_of(dtype: Any) -> str:
    """The type of a dtype, or "" if it is something else, such as a device."""
    spelling = str(getattr(dtype, "dtype", dtype)).removeprefix("torch.")
    spelling = getattr(dtype, "__name__", spelling)
    if spelling.startswith("bool"):
        return BOOL
    if spelling.startswith(("int", "uint", "long")):
        return INT
    return REAL if spelling.startswith(("float", "bfloat", "double", "half")) else ""


def convert(t: Tracer, x: Any, kind: str) -> Node:
    """A conversion to booleans, integers or reals."""
    node = t.node(x)
    if node.type == kind:
        return node
    if node.op == "const":
        return t.constant({BOOL: bool, INT: int, REAL: float}[kind](node.value))
    if kind == BOOL:
        return compare(t, "!=", x, 0)
    return t.graph.real(node) if kind == REAL else t.graph.call("int", node, type=INT)


def integer(t: Tracer, x: Any, target: Any) -> Node:
    """A conversion to integers of 64 bits, or of 32, which wraps; narrower ones wrap afterwards."""
    if target is int:  # Python's, which has 64 bits in NumPy and torch
        target = "int64"
    node, name = convert(t, x, INT), str(getattr(target, "__name__", target)).removeprefix("torch.")
    if name in ("uint32", "uint64"):
        raise refusal(f"specs have no integers of type {name}", ["write `.long()`, which has 64 bits"])
    if node.op == "const":
        return node if name in ("int64", "long") else t.constant(in_32_bits(node.value))
    if name in ("int64", "long"):
        return node if is_wide(node) else t.graph.call("long", node, type=INT)
    return t.graph.call("int", node, type=INT) if is_wide(node) else node


def _conversion(kind: str) -> Callable[..., Any]:
    return lambda t, x, *ignored: convert(t, x, kind)


define("bool")(_conversion(BOOL))
define("int", "short", "char", "byte")(lambda t, x, *ignored: integer(t, x, "int"))
define("long")(lambda t, x, *ignored: integer(t, x, "long"))
define("float", "double")(_conversion(REAL))


_EXACT_INTEGERS = {"float16": 2048, "half": 2048, "bfloat16": 256}  # the largest of those without gaps
_MOST_ROUNDED = 1 << 20


def _rounded(t: Tracer, x: Any, target: Any) -> Node:
    """A conversion to a type of reals, which rounds integers. Scores are computed with the precision of
    kernels, whatever their type in the mod is."""
    node, name = t.node(x), str(getattr(target, "__name__", target)).removeprefix("torch.")
    if node.type != INT or name not in _EXACT_INTEGERS:
        return convert(t, x, REAL)
    bounds = t.bounds(node)
    if bounds is not None and max(map(abs, bounds)) <= _EXACT_INTEGERS[name]:
        return convert(t, x, REAL)
    if bounds is None or bounds[1] - bounds[0] >= _MOST_ROUNDED:
        raise refusal(f"`{name}` would round an integer of unknown size",
                      ["write `.float()`, which is exact here"])
    return t.rows.rounded(node, bounds, "float16" if name == "half" else name)


define("half")(lambda t, x, *ignored: _rounded(t, x, "half"))
define("bfloat16")(lambda t, x, *ignored: _rounded(t, x, "bfloat16"))


def _filled(t: Tracer, value: Any, size: Any, dtype: Any, like: Any) -> Node:
    if isinstance(size, int):
        size = (size,)
    if any(extent != 1 for extent in size):
        raise refusal("a tensor made within a mod has one element, for one score", ["write the number"])
    return convert(t, t.wrap(t.node(value)), _kind_of(dtype) or t.node(like).type)


def _new(value: int) -> Callable[..., Any]:
    def apply(t: Tracer, x: Any, *size: Any, dtype: Any = None, **options: Any) -> Node:
        return _filled(t, value, options.get("size", size[0] if len(size) == 1 else size), dtype, x)
    return apply


def _like(value: int) -> Callable[..., Any]:
    return lambda t, x, dtype=None, **options: _filled(t, value, (), dtype, x)


define("new_ones")(_new(1))
define("new_zeros")(_new(0))
define("ones_like")(_like(1))
define("zeros_like")(_like(0))


define("new_full")(lambda t, x, size, fill_value, dtype=None, **_: _filled(t, fill_value, size, dtype, x))
define("full")(lambda t, size, fill_value, dtype=None, **_: _filled(t, fill_value, size, dtype, fill_value))
define("full_like")(lambda t, x, fill_value, dtype=None, **_: _filled(t, fill_value, (), dtype, x))
define("new_tensor", "scalar_tensor")(lambda t, x, data=None, **_: t.node(x if data is None else data))
