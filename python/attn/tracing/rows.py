"""Captured tensors, and those that a mod computes of them, as what it indexes."""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Callable

from attn.tracing import narrow, origins, tables, wide
from attn.tracing.captures import Capture, Captures, is_array, is_readable, is_tensor
from attn.tracing.expressions import INT, Node
from attn.tracing.places import refusal
from attn.tracing.recipes import Computed, Made, Part, Recipe, Source, mapped
from attn.tracing.values import Value, flat, has_other_values, tensors_in

if TYPE_CHECKING:
    from attn.tracing.tracer import Tracer


class Row(Value):
    """A tensor of captured values, element by element: `element` is the expression of one, for the indexes of
    its dimensions. Without dimensions it is a number, with one a vector, which `.sum()`, `.any()` or
    `torch.dot` reduce.

    `capture` and `axes`: what it is a part of, and which of its dimensions are those of the row, if they are.
    `value` is the tensor, and `recipe` says how it is found again, if it does not depend on a score's
    indexes. `given`: how many dimensions were indexed."""

    def __init__(self, tracer: Tracer, shape: tuple[int, ...], element: Callable[[tuple[Node, ...]], Node],
                 name: str, value: Any, recipe: Recipe | None = None, given: int = 0):
        self._tracer = tracer
        self._shape = shape
        self._given = given
        self.element = element
        self.name = name
        self.value = value
        self.recipe = recipe
        self.narrow = narrow.of_dtype(value.dtype)
        self.capture: Callable[[], Capture] | None = None
        self.axes: tuple[int, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if self.recipe is None or not is_array(self.value):
            return super().__getattr__(name)
        return tables.method_of(self, self._tracer, name)

    @property
    def node(self) -> Node:
        """The element that a mod reads without a further index. Raises TraceError if more than one dimension is
        left."""
        if len(self._shape) > 1:
            count = self._given + len(self._shape)
            raise refusal(f"`{self.name}` has {count} dimensions, but {self._given} "
                          f"index{'es are' if self._given != 1 else ' is'} given",
                          ["index every dimension: `bias[b, h, q_idx, kv_idx]`"])
        return self.element(tuple(map(self._tracer.graph.each, self._shape)))

    @property
    def has_64_bits(self) -> bool:
        """Whether its elements are integers of 64 bits."""
        return wide.is_int64(self.value.dtype)

    def element_at(self, indexes: tuple[Node, ...], has_64: bool) -> Value:
        """The element that meets one of a larger tensor, as dimensions are broadcast. `has_64`: whether what is
        computed of it has 64 bits, as integers without dimensions do not decide."""
        own = indexes[len(indexes) - len(self._shape):]
        zero = self._tracer.graph.const(0)
        node = self.element(tuple(zero if size == 1 else index for size, index in zip(self._shape, own)))
        return Value(self._tracer, node, self.narrow if node.type == INT else None,
                     has_64 and self.has_64_bits)

    @property
    def is_captured(self) -> bool:
        """Whether it depends on a tensor of the user."""
        return not isinstance(self.recipe, Made)

    @property
    def is_readable(self) -> bool:
        """Whether specs have the type of the tensor's elements."""
        return is_readable(self.value.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions that are not indexed yet."""
        return self._shape

    @property
    def device(self) -> Any:
        """The device of the captured tensor."""
        return getattr(self.value, "device", "cpu")

    @property
    def dtype(self) -> Any:
        """The type of the captured tensor's elements, as its library names it."""
        return self.value.dtype

    def __len__(self) -> int:
        return self._shape[0] if self._shape else super().__len__()

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        if self.recipe is not None and is_array(self.value) and not has_other_values(index):
            return self._tracer.apply(operator.getitem, "__getitem__", self, index)
        found = tables.indexed(self, index, self._tracer)
        if self.capture is not None:
            origins.note(self._tracer.indexed, self.capture(), self.axes, found.nodes)
        row = Row(self._tracer, found.shape, found.element, self.name, self.value, None,
                  self._given + len(self._shape) - len(found.shape))
        if self.capture is not None and found.whole:
            row.capture = self.capture
            row.axes = tuple(axis for axis, node in zip(self.axes, found.nodes) if node is None)
        return row if found.shape else Value(self._tracer, found.element(()), row.narrow)


class Rows:
    """The rows of the tensors of one trace."""

    def __init__(self, tracer: Tracer, captures: Captures):
        self._tracer = tracer
        self._captures = captures
        self._tables: dict[Any, Row] = {}
        self._rows: dict[int, Row] = {}  # of tensors, by their ids; a row keeps its tensor

    def capture(self, value: Any, name: str, place: int | None) -> Any:
        """Notes that the mod read a tensor or array of the user."""
        if id(value) not in self._rows and not (is_array(value) and value.dtype.kind in "OUSMm"):
            self._add(value, name, Source(value, place))

    def array(self, value: Any, name: str, place: int | None) -> Any:
        """The stand-in of a captured NumPy array."""
        self.capture(value, name, place)
        return self._rows.get(id(value), value)

    def known(self, value: Any) -> Row | None:
        """What a tensor is for the mod, if it was captured or computed in the mod."""
        return self._rows.get(id(value))

    def of(self, tensor: Any) -> Row:
        """The captured tensor as what a mod indexes. It is captured if it was not."""
        self.capture(tensor, "values", None)
        return self._rows[id(tensor)]

    def _add(self, value: Any, name: str, recipe: Recipe, element: Any = None) -> Row:
        graph = self._tracer.graph

        def load(indexes: tuple[Node, ...]) -> Node:
            return graph.load(self._captures.of(recipe, value, name), indexes or (graph.const(0),))

        def number(indexes: tuple[Node, ...]) -> Node:
            return self._tracer.constant(value.item())

        is_number = isinstance(recipe, Made) and len(value.shape) == 0
        element = element or (number if is_number else load)
        made = Row(self._tracer, tuple(map(int, value.shape)), element, name, value, recipe)
        if element is load:
            made.capture = lambda: self._captures.of(recipe, value, name)
            made.axes = tuple(range(value.ndim))
        self._rows[id(value)] = made
        return made

    def derive(self, function: Callable[..., Any], name: str, args: Any, kwargs: Any, result: Any,
               records: bool) -> Any:
        """Notes how the mod computed tensors from what it captured, and gives the rows of arrays."""
        if any(result is each for each in (*args, *kwargs.values())):
            return result
        known = [row for row in map(self._row_of, flat([*args, *kwargs.values()])) if row is not None]
        if not any(row.is_captured for row in known):
            for tensor in tensors_in([result]):
                self._add(tensor, "values", Made(tensor))
            return result
        arguments = [mapped(each, self._recipe_of) for each in (args, *kwargs.values())]
        recipe = Computed(function, arguments[0], dict(zip(kwargs, arguments[1:])), records)
        return self._derived(recipe, name, args, kwargs, result, known)

    def _derived(self, recipe: Any, name: str, args: Any, kwargs: Any, result: Any, known: list[Row]) -> Any:
        if isinstance(result, (list, tuple)):
            each = [self._derived(Part(recipe, i), name, args, kwargs, one, known)
                    for i, one in enumerate(result)]
            return result if any(is_tensor(one) and not is_array(one) for one in result) else tuple(each)
        if not is_tensor(result) and not hasattr(result, "dtype"):
            return result
        element = tables.view(known[0], recipe, args, kwargs, self._tracer.graph)
        if element is None and tables.is_elementwise(name, result.dtype, known, kwargs):
            element = self._elementwise(name, args, kwargs, wide.is_int64(result.dtype))
        row = self._add(result, known[0].name, recipe, element)
        return result if is_tensor(result) and not is_array(result) else row

    def _elementwise(self, name: str, args: Any, kwargs: Any, has_64: bool) -> Any:
        def element(indexes: tuple[Node, ...]) -> Node:
            def at(value: Any) -> Any:
                row = self._row_of(value)
                return value if row is None else row.element_at(indexes, has_64)

            named = {key: at(each) for key, each in kwargs.items()}
            return self._tracer.node(self._tracer.call(name, *map(at, args), **named))

        return element

    def _row_of(self, value: Any) -> Row | None:
        return value if isinstance(value, Row) else self._rows.get(id(value)) if is_tensor(value) else None

    def _recipe_of(self, value: Any) -> Any:
        row = self._row_of(value)
        return value if row is None else row.recipe

    def rounded(self, node: Node, bounds: tuple[int, int], dtype: str) -> Node:
        """A real number for each integer within bounds, rounded to a type: read from a table."""
        table = _rounded_integers(*bounds, dtype)
        key = ("rounded", bounds, dtype)
        row = self._tables.get(key)
        if row is None:
            row = self._tables[key] = self._add(table, f"rounded_{dtype}", Made(table))
        first = self._tracer.graph.const(bounds[0])
        return row.element((self._tracer.graph.node("-", (node, first), INT) if bounds[0] else node,))


def _rounded_integers(first: int, last: int, dtype: str) -> Any:
    """An array, which calls move to where they need it."""
    import numpy

    if dtype == "float16":
        return numpy.arange(first, last + 1).astype(numpy.float16).astype(numpy.float32)
    import torch

    with torch._C.DisableTorchFunction():  # these are no operations of the mod
        return torch.arange(first, last + 1, device="cpu").to(getattr(torch, dtype)).float().numpy()
