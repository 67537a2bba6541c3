"""Tensors that are parts, views or functions of captured ones, element by element."""
from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from attn.tracing.captures import is_array, spelling
from attn.tracing.expressions import BOOL, INT, REAL, Graph, Node
from attn.tracing.recipes import Computed, Part
from attn.tracing.places import refusal

if TYPE_CHECKING:
    from attn.tracing.rows import Row
    from attn.tracing.tracer import Tracer

Element = Callable[[tuple[Node, ...]], Node]


# --- indexes of a score


class Indexed(NamedTuple):
    """Shape and elements of `row[index]`, the index of each dimension that has one, and whether the others
    stay whole."""

    shape: tuple[int, ...]
    element: Element
    nodes: list[Node | None]
    whole: bool


def indexed(row: Row, index: Any, tracer: Tracer) -> Indexed:
    """What `row[index]` is: the element or elements of a captured tensor, as nodes. Raises TraceError for an
    index that cannot be traced."""
    graph, given = tracer.graph, _filled(row, index)
    shape: list[int] = []
    nodes: list[Node | None] = []
    whole = True
    places: list[Callable[[tuple[Node, ...]], Node]] = []
    axis = 0
    for one in given:
        if one is None:
            shape.append(1)
            whole = False
            continue
        size, axis = row.shape[axis], axis + 1
        if isinstance(one, slice):
            start, _, step = one.indices(size)
            places.append(_along(graph, len(shape), start, step))
            shape.append(len(range(*one.indices(size))))
            whole = whole and shape[-1] == size and step == 1
            nodes.append(None)
        else:
            node = _index(row, one, size, tracer)
            nodes.append(node)
            places.append(_fixed(node))

    def element(indexes: tuple[Node, ...]) -> Node:
        return row.element(tuple(place(indexes) for place in places))

    return Indexed(tuple(shape), element, nodes, whole)


def _filled(row: Row, index: Any) -> list[Any]:
    """An index for each dimension, with `None` for new ones."""
    given = list(index) if isinstance(index, tuple) else [index]
    count = len(row.shape)
    real = sum(one is not None and one is not Ellipsis for one in given)
    if real > count:
        total = row._given + count
        raise refusal(f"`{row.name}` has {total} dimension{'s' if total > 1 else ''}, "
                      f"but {row._given + real} indexes are given")
    at = next((i for i, one in enumerate(given) if one is Ellipsis), len(given))
    return given[:at] + [slice(None)] * (count - real) + given[at + 1:]


def _fixed(node: Node) -> Callable[[tuple[Node, ...]], Node]:
    return lambda indexes: node


def _along(graph: Graph, axis: int, start: int, step: int) -> Callable[[tuple[Node, ...]], Node]:
    return lambda indexes: _affine(graph, indexes[axis], start, step)


def _affine(graph: Graph, index: Node, start: int, step: int) -> Node:
    return _sum(graph, [(index, step)], start)


def _sum(graph: Graph, terms: list[tuple[Node, int]], constant: int) -> Node:
    """The integer `constant + sum(index * step)`."""
    found: Node | None = None
    for index, step in terms:
        if index.op == "const":
            constant += index.value * step
        elif step:
            term = index if step == 1 else graph.node("*", (index, graph.const(step)), INT)
            found = term if found is None else graph.node("+", (found, term), INT)
    if found is None:
        return graph.const(constant)
    if constant < 0:
        return graph.node("-", (found, graph.const(-constant)), INT)
    return graph.node("+", (found, graph.const(constant)), INT) if constant else found


def _index(row: Row, given: Any, size: int, tracer: Tracer) -> Node:
    node = tracer.node(given)
    if node.type != INT:
        instead = "`torch.where`" if node.type == BOOL else "`//` in place of `/`, or `.int()`"
        raise refusal(f"an index of `{row.name}` is a {node.type} number"
                      if node.type == REAL else f"an index of `{row.name}` is a boolean",
                      [f"write {instead}"])
    if node.op == "const":
        if not -size <= node.value < size:
            raise refusal(f"index {node.value} of `{row.name}` is out of range; "
                          f"the dimension has size {size}")
        return tracer.graph.const(node.value % size)
    if node.size:
        raise refusal(f"a vector as an index of `{row.name}` cannot be traced")
    return node


# --- views


def view(row: Row, recipe: Computed | Part, args: Any, kwargs: Any, graph: Graph) -> Element | None:
    """The elements of a view of the row, such as a transpose or a slice; None if it is none. The function is
    tried on memory whose places say where they are."""
    if row.recipe is None or 0 in row.shape or not args or _first(args) is not row.value:
        return None
    probe = _probe(row)
    try:
        found = _tried(recipe, probe, row.value)
    except Exception:  # it reads elements, or wants another device
        return None
    where = _where(found, probe)
    return None if where is None else _through(row, *where, graph)


def _first(args: Any) -> Any:
    value = args[0]
    return getattr(value, "value", value)


def _probe(row: Row) -> Any:
    """A tensor without gaps of the same shape and type. It has no elements if it is torch's."""
    if is_array(row.value):
        import numpy

        return numpy.empty(row.shape, row.value.dtype)
    import torch

    return torch.empty(row.shape, dtype=row.value.dtype, device="meta")


def _tried(recipe: Computed | Part, probe: Any, value: Any) -> Any:
    if isinstance(recipe, Part):
        return _tried(recipe.of, probe, value)[recipe.place]
    return recipe.function(probe, *recipe.args[1:], **recipe.kwargs)


def _where(found: Any, probe: Any) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Shape, strides and offset of a view, in elements."""
    if is_array(probe):
        if not is_array(found) or (found is not probe and getattr(found, "base", None) is None) or found.dtype != probe.dtype:
            return None
        size = probe.itemsize
        first, own = (each.__array_interface__["data"][0] for each in (probe, found))
        inside = 0 <= own - first < max(probe.nbytes, 1)
        return (found.shape, tuple(step // size for step in found.strides),
                (own - first) // size) if inside else None
    if found is not probe and (not hasattr(found, "_base") or found._base is not probe):
        return None
    if found.dtype != probe.dtype:
        return None
    return tuple(found.shape), tuple(found.stride()), found.storage_offset()


def _through(row: Row, shape: tuple[int, ...], strides: tuple[int, ...], offset: int,
             graph: Graph) -> Element:
    """Elements by their places in memory without gaps, of which a place's digits are the row's indexes."""
    sizes = row.shape
    units = [math.prod(sizes[axis + 1:]) for axis in range(len(sizes))]
    starts, steps = _digits(offset, units), [_digits(abs(step), units) for step in strides]
    clean = all(step >= 0 for step in strides) and all(
        starts[axis] + sum(step[axis] * (size - 1) for step, size in zip(steps, shape)) < sizes[axis]
        for axis in range(len(sizes)))

    def element(indexes: tuple[Node, ...]) -> Node:
        if clean:
            return row.element(tuple(
                _sum(graph, [(index, step[axis]) for index, step in zip(indexes, steps)], starts[axis])
                for axis in range(len(sizes))))
        place = _sum(graph, list(zip(indexes, strides)), offset)
        return row.element(tuple(_digit(graph, place, unit, size, axis == 0)
                                 for axis, (unit, size) in enumerate(zip(units, sizes))))

    return element


def _digits(place: int, units: list[int]) -> list[int]:
    found = []
    for unit in units:
        found.append(place // unit)
        place %= unit
    return found


def _digit(graph: Graph, place: Node, unit: int, size: int, is_first: bool) -> Node:
    if place.op == "const":
        return graph.const(place.value // unit % size)
    if size == 1:
        return graph.const(0)
    found = place if unit == 1 else graph.node("//", (place, graph.const(unit)), INT)
    return found if is_first else graph.node("%", (found, graph.const(size)), INT)


# --- functions of each element

_ELEMENTWISE = frozenset(
    "add sub subtract rsub mul multiply true_divide divide div rdiv neg negative abs absolute exp exp2 log "
    "log2 sqrt rsqrt tanh sigmoid erf sin cos tan log1p expm1 expit softplus silu relu relu6 leaky_relu elu "
    "logsigmoid atan2 minimum maximum clamp clip clamp_min clamp_max lt less le less_equal gt greater ge "
    "greater_equal eq ne not_equal where masked_fill bitwise_and bitwise_or bitwise_xor bitwise_not invert "
    "logical_and logical_or logical_xor logical_not isnan isinf sign square reciprocal floor ceil to type "
    "astype bool int long float double floor_divide remainder clone".split())
_OF_INTEGERS = frozenset(  # which stay within 32 bits, or nearly so
    "add sub subtract rsub neg negative abs absolute minimum maximum clamp clip clamp_min clamp_max where "
    "masked_fill bitwise_and bitwise_or bitwise_xor bitwise_not invert floor_divide remainder to type astype "
    "int long clone sign relu".split())
_EXACT = ("float32", "float64", "bool", "int32", "int64")


def is_elementwise(name: str, dtype: Any, rows: list[Row], kwargs: Any) -> bool:
    """Whether an element of the result is the same function of elements, without a rounding or wrapping that
    a spec does not have."""
    if name not in _ELEMENTWISE or spelling(dtype) not in _EXACT or "out" in kwargs:
        return False
    if spelling(dtype).startswith("int") and name not in _OF_INTEGERS:
        return False
    return all(spelling(row.value.dtype) in _EXACT or name in _CONVERSIONS and row.is_readable
               for row in rows)


_CONVERSIONS = ("to", "type", "astype", "bool", "int", "long", "float", "double")


# --- methods of arrays


def method_of(row: Row, tracer: Tracer, name: str) -> Any:
    """A method or attribute of a captured array."""
    if name.startswith("_"):
        raise AttributeError(name)
    attribute = getattr(row.value, name)
    if not callable(attribute):
        if not is_array(attribute) and name not in ("nbytes", "itemsize"):
            tracer.opaque = f"it asks for `{name}` of an array"
        return tracer.apply(property_of(name), name, row) if is_array(attribute) else attribute

    def apply(*args: Any, **kwargs: Any) -> Any:
        return tracer.apply(method(name), name, row, *args, **kwargs)

    return apply


def property_of(name: str) -> Callable[..., Any]:
    """A function that reads the property `name` of a value."""
    return functools.partial(_property, name)


def _property(name: str, value: Any) -> Any:
    return getattr(value, name)


def method(name: str) -> Callable[..., Any]:
    """A function that calls the method `name` of its first argument."""
    return functools.partial(_called, name)


def _called(name: str, value: Any, *args: Any, **kwargs: Any) -> Any:
    return getattr(value, name)(*args, **kwargs)
