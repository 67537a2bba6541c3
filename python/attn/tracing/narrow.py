"""Integers of less than 32 bits, which wrap at their own width as torch's do; a spec's integers have 32 or 64."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn.tracing.expressions import INT, REAL, Graph, Node, in_32_bits, is_of_32_bits, is_wide
from attn.tracing.places import refusal

if TYPE_CHECKING:
    from attn.tracing.tracer import Tracer

_BITS = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16}
_CONVERSIONS = {"to": "", "type": "", "astype": "", "_to_copy": "", "char": "int8", "byte": "uint8",
                "short": "int16", "type_as": ""}
_WRAPPING = frozenset(
    "add sub subtract rsub mul multiply neg negative abs absolute pow power rpow square bitwise_left_shift "
    "left_shift rlshift bitwise_not invert floor_divide rfloor_divide div divide lax_div lerp bitwise_xor bitwise_or "
    "bitwise_and".split())
KEEPING = _WRAPPING | frozenset(
    "remainder mod rremainder fmod bitwise_right_shift right_shift rrshift minimum maximum min max amin amax fmin "
    "fmax clamp clip clamp_min clamp_max where masked_fill positive clone contiguous squeeze unsqueeze alias "
    "cpu cuda expand_as detach relu sign sgn floor ceil trunc fix round".split())
_COMPARING = frozenset("lt less le less_equal gt greater ge greater_equal eq equal ne not_equal".split())
_DIVISIONS = frozenset(("div", "divide"))
_OF_DIMENSIONS = frozenset("max min amax amin squeeze unsqueeze round".split())  # with numbers that are no operands
_MODULAR = frozenset(  # of which the bits that are left do not depend on others, or which shift by a number
    "add sub subtract rsub mul multiply bitwise_xor bitwise_or bitwise_and bitwise_left_shift left_shift pow power "
    "bitwise_right_shift right_shift".split())


def of_dtype(dtype: Any) -> str | None:
    """The name of a narrow integer type, None of others."""
    name = str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")
    return name if name in _BITS else None


def of_result(name: str, args: Any, kwargs: Any, tracer: Tracer) -> str | None:
    """The type of what a function gives, if it is a narrow one."""
    if name in _CONVERSIONS:
        targets = [kwargs.get("dtype"), *args[1:]]
        return _CONVERSIONS[name] or next(filter(None, map(_type_of, targets)), None) or (
            _type_of(args[0]) if not any(map(_is_dtype, targets)) else None)
    return _promoted(_typed(args, kwargs), tracer) if name in KEEPING else None


def _typed(args: Any, kwargs: Any) -> list[Any]:
    """The arguments that have a type, unlike Python's numbers."""
    return [each for each in (*args, *kwargs.values()) if hasattr(each, "narrow") or hasattr(each, "dtype")]


def refuse_larger(name: str, args: Any, kwargs: Any, tracer: Tracer) -> None:
    """Raises TraceError for a Python number that does not fit in the integers that it is combined or compared with:
    torch converts it to their type, and wraps it, or refuses it."""
    numbers = [each for each in (*args, *kwargs.values()) if type(each) is int and not 0 <= each < 128]
    if not numbers or name in _OF_DIMENSIONS or name not in KEEPING | _COMPARING:
        return
    values = _typed(args, kwargs)
    kind = _promoted(values, tracer)
    if kind is not None and name not in _MODULAR and (name not in _DIVISIONS or kwargs.get("rounding_mode")):
        low, high = _range(kind)
        _refuse(next((each for each in numbers if not low <= each < high), None), f"the {kind}", ".int()")
    large = next((each for each in numbers if in_32_bits(each) != each), None)
    if large is not None and name not in _DIVISIONS and _are_of_32_bits(values, tracer):
        _refuse(large, "the 32 bits of the integer", ".long()")


def _refuse(number: int | None, what: str, conversion: str) -> None:
    if number is not None:
        raise refusal(f"{number} does not fit in {what} beside it", [f"write `x{conversion}` for that one"])


def _range(kind: str) -> tuple[int, int]:
    """The least integer of a narrow type, and the first above all."""
    bits = _BITS[kind]
    return (0, 1 << bits) if kind.startswith("uint") else (-1 << bits - 1, 1 << bits - 1)


def _are_of_32_bits(values: list[Any], tracer: Tracer) -> bool:
    nodes = [tracer.node(each) for each in values]
    return not any(node.type == REAL or is_wide(node) for node in nodes) and any(
        node.type == INT and is_of_32_bits(node) for node in nodes)


def _is_dtype(value: Any) -> bool:
    return type(value).__name__ in ("dtype", "type") or hasattr(value, "narrow")


def _type_of(value: Any) -> str | None:
    """The narrow type of a value, or of a type that something is converted to."""
    if hasattr(value, "narrow") and not callable(value.narrow):  # tensors have a method of this name
        narrow: str | None = value.narrow
        return narrow
    return of_dtype(value if isinstance(value, type) else getattr(value, "dtype", value))


def _promoted(values: list[Any], tracer: Tracer) -> str | None:
    found: set[str] = set()
    for value in values:
        kind = _type_of(value)
        if kind is None:
            if tracer.node(value).type in (INT, REAL):
                return None
            continue
        found.add(kind)
    if len(found) < 2:
        return next(iter(found), None)
    return "int16" if found <= {"int8", "uint8", "int16"} else None


def wrapped(graph: Graph, name: str, node: Node, kind: str | None) -> Node:
    """What is left of an integer in a narrow type."""
    if kind is None or node.type != INT or name not in _WRAPPING and name not in _CONVERSIONS:
        return node
    bits = _BITS[kind]
    if node.op == "const":
        low = node.value & ((1 << bits) - 1)
        return graph.const(low - (1 << bits) if kind.startswith("int") and low >> (bits - 1) else low)
    mask = graph.const((1 << bits) - 1)
    if kind.startswith("uint"):
        return graph.node("&", (node, mask), INT)
    half = graph.const(1 << (bits - 1))
    moved = graph.node("+", (node, half), INT)
    return graph.node("-", (graph.node("&", (moved, mask), INT), half), INT)
