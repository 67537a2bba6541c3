"""Integers that have 64 bits in torch though their expressions have 32: what is computed of int64 scalars that a mod
makes, of booleans with Python's numbers, and of indexes with either. They become `long` where 32 bits might not be
enough. Indexes themselves count as integers of 32 bits."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn.tracing.expressions import BOOL, INT, Node, in_32_bits, is_of_32_bits, is_wide
from attn.tracing.narrow import KEEPING

if TYPE_CHECKING:
    from attn.tracing.tracer import Tracer

_CONVERSIONS = frozenset("to type astype _to_copy type_as int long short char byte".split())
_MADE = frozenset("full new_full new_ones new_zeros full_like ones_like zeros_like".split())
_COUNTS = frozenset("sum count_nonzero searchsorted bucketize digitize".split())
_WITHOUT_SCALARS = ("where", "clamp", "clip")  # torch.vmap takes the type of what differs from score to score
_BEHIND = {"where": 1, "rsub": 1, "rlshift": 1, "rrshift": 1, "rpower": 1, "rfloor_divide": 1, "rremainder": 1}


def is_int64(dtype: Any) -> bool:
    """Whether a type of torch, NumPy or Python is that of integers of 64 bits."""
    return dtype is int or str(getattr(dtype, "__name__", dtype)).removeprefix("torch.") in ("int64", "long")


def of_result(name: str, args: Any, kwargs: Any, tracer: Tracer) -> bool:
    """Whether an integer that a function gives has 64 bits in torch."""
    if name in _CONVERSIONS:
        return name == "long" or _target(name, args, kwargs, tracer)
    if name in _MADE:
        return _is_made(name, args, kwargs, tracer)
    if name in _COUNTS:
        return kwargs.get("dtype") is None
    if name not in KEEPING:
        return False
    values = _operands(name, args, kwargs, tracer)
    if any(tracer.has_64_bits(each) for each in values):
        return True
    types = [tracer.node(each).type for each in values if tracer.is_typed(each)]
    return any(type(each) is int for each in values) and all(each == BOOL for each in types)


def _target(name: str, args: Any, kwargs: Any, tracer: Tracer) -> bool:
    if name == "type_as":
        return tracer.has_64_bits(args[1])
    targets = [each for each in (kwargs.get("dtype"), *args[1:]) if type(each).__name__ in ("dtype", "type")]
    return any(map(is_int64, targets)) or not targets and name.strip("_") in ("to", "to_copy") and tracer.has_64_bits(
        args[0])


def _is_made(name: str, args: Any, kwargs: Any, tracer: Tracer) -> bool:
    dtype = kwargs.get("dtype")
    if dtype is not None:
        return is_int64(dtype)
    like = kwargs.get("fill_value", args[1] if len(args) > 1 else None) if name == "full" else args[0]
    if type(like) is int or tracer.has_64_bits(like):
        return True
    node = tracer.node(like)  # an index has 64 bits in torch
    return node.type == INT and not is_of_32_bits(node)


def _operands(name: str, args: Any, kwargs: Any, tracer: Tracer) -> list[Any]:
    """The arguments that the type of the result is of."""
    values = [*args, *kwargs.values()]
    values = values[1:] if name == "where" else values[:1] if name == "masked_fill" else values
    if name in _WITHOUT_SCALARS and any(_is_integer(each, tracer) for each in values):
        return [each for each in values if _is_integer(each, tracer)]
    return values


def _is_integer(value: Any, tracer: Tracer) -> bool:
    """Whether it is an integer with a type that may differ from score to score."""
    if not tracer.is_typed(value):
        return False
    node = tracer.node(value)
    return node.type == INT and node.op != "const"


def may_overflow(node: Node, tracer: Tracer) -> bool:
    """Whether 32 bits may not hold a result of 64."""
    if node.type != INT or is_wide(node):
        return False
    bounds = tracer.bounds(node)
    return bounds is None or any(in_32_bits(each) != each for each in bounds)


def widened(name: str, args: Any, tracer: Tracer) -> list[Any]:
    """The arguments with one as `long`, so that the result is."""
    place = min(_BEHIND.get(name, 0), len(args) - 1)
    node = tracer.graph.call("long", tracer.node(args[place]), type=INT)
    return [*args[:place], tracer.wrap(node), *args[place + 1:]]
