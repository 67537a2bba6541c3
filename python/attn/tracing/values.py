"""What a mod computes with while it is traced: values that stand for one score each."""
from __future__ import annotations

import math
import operator
from typing import Any, Callable, Mapping

from attn.tracing import functions, narrow, origins, tables, wide
from attn.tracing.captures import Capture, Captures, is_array, is_readable, is_tensor
from attn.tracing.expressions import (BOOL, INT, REAL, Graph, Mismatch, Node, bounds_of,
                                      is_wide)
from attn.tracing.recipes import Computed, Made, Part, Recipe, Source, mapped
from attn.tracing.places import control_flow, refusal


class Tracer:
    """The state of one trace: the expressions made so far and the tensors read."""

    def __init__(self, graph: Graph, captures: Captures, sizes: Mapping[str, int]):
        self.graph = graph
        self._sizes = sizes
        self.captures = captures
        self.local_names: dict[int, str] = {}  # of nodes, by the user's variables
        self.indexed: list[origins.Indexed] = []
        self.opaque: str | None = None  # as a Watch has it
        self._tables: dict[Any, Row] = {}
        self._rows: dict[int, Row] = {}  # of tensors, by their ids; a row keeps its tensor

    def node(self, value: Any) -> Node:
        """The expression of anything that a mod may compute with."""
        if isinstance(value, Value):
            return value.node
        if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
            return self.constant(value.item())
        if isinstance(value, (bool, int, float)):
            return self.constant(value)
        if is_tensor(value):
            return self.row(value).node
        raise refusal(f"a score cannot be computed with a value of type `{value.__class__.__name__}`",
                      ["numbers, booleans, tensors and the mod's parameters can be used"])

    def constant(self, value: bool | int | float) -> Node:
        """The node of a number. Raises TraceError for a complex number, NaN or an integer beyond 64 bits."""
        if isinstance(value, complex):
            raise refusal("complex numbers have no meaning in a score")
        if value != value:
            raise refusal("the mod computes with NaN")
        if isinstance(value, int) and not -1 << 63 <= value < 1 << 63:
            raise refusal(f"the integer {value} does not fit in 64 bits", ["write it as a real number: `1e20`"])
        return self.graph.const(value)

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

    def row(self, tensor: Any) -> Row:
        """The captured tensor as what a mod indexes. It is captured if it was not."""
        self.capture(tensor, "values", None)
        return self._rows[id(tensor)]

    def _add(self, value: Any, name: str, recipe: Recipe, element: Any = None) -> Row:
        def load(indexes: tuple[Node, ...]) -> Node:
            return self.graph.load(self.captures.of(recipe, value, name), indexes or (self.graph.const(0),))

        def number(indexes: tuple[Node, ...]) -> Node:
            return self.constant(value.item())

        is_number = isinstance(recipe, Made) and len(value.shape) == 0
        element = element or (number if is_number else load)
        made = Row(self, tuple(map(int, value.shape)), element, name, value, recipe)
        if element is load:
            made.capture = lambda: self.captures.of(recipe, value, name)
            made.axes = tuple(range(value.ndim))
        self._rows[id(value)] = made
        return made

    def derive(self, function: Callable, name: str, args: Any, kwargs: Any, result: Any,
               records: bool) -> Any:
        """Notes how the mod computed tensors from what it captured, and gives the rows of arrays."""
        if any(result is each for each in (*args, *kwargs.values())):
            return result
        known = [row for row in map(self._row_of, _flat([*args, *kwargs.values()])) if row is not None]
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
        element = tables.view(known[0], recipe, args, kwargs, self.graph)
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
            return self.node(self.call(name, *map(at, args), **named))

        return element

    def _row_of(self, value: Any) -> Row | None:
        return value if isinstance(value, Row) else self._rows.get(id(value)) if is_tensor(value) else None

    def _recipe_of(self, value: Any) -> Any:
        row = self._row_of(value)
        return value if row is None else row.recipe

    def wrap(self, node: Node) -> Value:
        """The node as what a mod computes with."""
        return Value(self, node)

    def bounds(self, node: Node) -> tuple[int, int] | None:
        """The least and the largest value of an integer, as far as that is easily seen."""
        return bounds_of(node, self._sizes)

    def rounded(self, node: Node, bounds: tuple[int, int], dtype: str) -> Node:
        """A real number for each integer within bounds, rounded to a type: read from a table."""
        table = _rounded_integers(*bounds, dtype)
        key = ("rounded", bounds, dtype)
        row = self._tables.get(key)
        if row is None:
            row = self._tables[key] = self._add(table, f"rounded_{dtype}", Made(table))
        first = self.graph.const(bounds[0])
        return row.element((self.graph.node("-", (node, first), INT) if bounds[0] else node,))

    def apply(self, function: Callable, name: str, *args: Any, **kwargs: Any) -> Any:
        """A function of values. One of captured arrays alone is computed with the arrays."""
        values = [value for value in _flat([*args, *kwargs.values()]) if isinstance(value, Value)]
        if any(not isinstance(value, Row) or not is_array(value.value) for value in values):
            return self.call(name, *args, **kwargs)
        if functions.is_random(name):
            raise functions.random_error()
        if name in functions.READS_VALUES and not args[1:]:
            raise functions.reading_error(values[0].name)
        if functions.is_in_place(name):
            raise functions.in_place_error(name)
        arrays = [mapped(each, _value_of) for each in (args, *kwargs.values())]
        result = function(*arrays[0], **dict(zip(kwargs, arrays[1:])))
        return self.derive(function, name, args, kwargs, result, True)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Applies a function of torch or NumPy by its name."""
        function = functions.find(name)
        if function is None:
            raise functions.unknown(name)
        narrow.refuse_larger(name, args, kwargs, self)
        try:
            result = function(self, *args, **kwargs)
        except Mismatch as mismatch:
            raise refusal(str(mismatch)) from None
        except TypeError as error:
            if error.__traceback__ and error.__traceback__.tb_next is None:  # the arguments do not fit
                raise refusal(f"`{name}` cannot be traced with these arguments: {error}") from None
            raise
        if not isinstance(result, Node):
            return result
        kind = narrow.of_result(name, args, kwargs, self)
        has_64 = kind is None and result.type == INT and wide.of_result(name, args, kwargs, self)
        if has_64 and wide.may_overflow(result, self):
            result = function(self, *wide.widened(name, args, self), **kwargs)
        return Value(self, narrow.wrapped(self.graph, name, result, kind), kind, has_64)

    def is_typed(self, value: Any) -> bool:
        """Whether it has a type of its own, unlike Python's numbers and NumPy's."""
        return isinstance(value, Value) or is_tensor(value)

    def has_64_bits(self, value: Any) -> bool:
        """Whether it is an integer of 64 bits for torch."""
        return self.is_typed(value) and self.value(value).has_64_bits

    def value(self, value: Any) -> Value:
        """A traced value as it is, a tensor as its row."""
        return value if isinstance(value, Value) else self.row(value)


def _rounded_integers(first: int, last: int, dtype: str) -> Any:
    """An array, which calls move to where they need it."""
    import numpy

    if dtype == "float16":
        return numpy.arange(first, last + 1).astype(numpy.float16).astype(numpy.float32)
    import torch

    with torch._C.DisableTorchFunction():  # these are no operations of the mod
        return torch.arange(first, last + 1, device="cpu").to(getattr(torch, dtype)).float().numpy()


def _value_of(value: Any) -> Any:
    return value.value if isinstance(value, Row) else value


def _binary(name: str, function: Callable) -> Callable:
    def method(self: Value, other: Any) -> Any:
        return self._tracer.apply(function, name, self, other)
    return method


def _reflected(name: str, function: Callable) -> Callable:
    def method(self: Value, other: Any) -> Any:
        return self._tracer.apply(function, name, other, self)
    return method


def _unary(name: str, function: Callable) -> Callable:
    def method(self: Value) -> Any:
        return self._tracer.apply(function, name, self)
    return method


class Value:
    """A number, integer or boolean for each score. Operators and torch's functions make new ones."""

    __array_priority__ = 1000
    recipe: Recipe | None = None  # of what does not depend on a score's indexes

    def __init__(self, tracer: Tracer, node: Node, narrow: str | None = None, has_64: bool = False):
        self._tracer = tracer
        self._node = node
        self.narrow = narrow  # its type, if it is an integer of less than 32 bits: "int8"
        self._has_64 = has_64

    @property
    def node(self) -> Node:
        """The expression that the value stands for."""
        return self._node

    @property
    def has_64_bits(self) -> bool:
        """Whether it is an integer of 64 bits in torch, which its expression may not be."""
        return self._has_64 or is_wide(self.node)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        tracer = next(value._tracer for value in _flat([*args, *(kwargs or {}).values()])
                      if isinstance(value, Value))
        return tracer.call(functions.name_of(func), *args, **(kwargs or {}))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs.get("out") is not None:
            raise refusal(f"`numpy.{ufunc.__name__}.{method}` cannot be traced")
        return self._tracer.apply(ufunc, ufunc.__name__, *inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        return self._tracer.apply(func, func.__name__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if functions.find(name) is None:
            raise functions.unknown(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            return self._tracer.call(name, self, *args, **kwargs)
        return method

    __add__ = _binary("add", operator.add)
    __radd__ = _reflected("add", operator.add)
    __sub__ = _binary("sub", operator.sub)
    __rsub__ = _reflected("sub", operator.sub)
    __mul__ = _binary("mul", operator.mul)
    __rmul__ = _reflected("mul", operator.mul)
    __truediv__ = _binary("true_divide", operator.truediv)
    __rtruediv__ = _reflected("true_divide", operator.truediv)
    __floordiv__ = _binary("floor_divide", operator.floordiv)
    __rfloordiv__ = _reflected("floor_divide", operator.floordiv)
    __mod__ = _binary("remainder", operator.mod)
    __rmod__ = _reflected("remainder", operator.mod)
    __pow__ = _binary("pow", operator.pow)
    __rpow__ = _reflected("pow", operator.pow)
    __lshift__ = _binary("bitwise_left_shift", operator.lshift)
    __rlshift__ = _reflected("bitwise_left_shift", operator.lshift)
    __rshift__ = _binary("bitwise_right_shift", operator.rshift)
    __rrshift__ = _reflected("bitwise_right_shift", operator.rshift)
    __and__ = _binary("bitwise_and", operator.and_)
    __rand__ = _reflected("bitwise_and", operator.and_)
    __or__ = _binary("bitwise_or", operator.or_)
    __ror__ = _reflected("bitwise_or", operator.or_)
    __xor__ = _binary("bitwise_xor", operator.xor)
    __rxor__ = _reflected("bitwise_xor", operator.xor)
    __matmul__ = _binary("dot", operator.matmul)
    __rmatmul__ = _reflected("dot", operator.matmul)
    __lt__, __le__ = _binary("lt", operator.lt), _binary("le", operator.le)
    __gt__, __ge__ = _binary("gt", operator.gt), _binary("ge", operator.ge)
    __eq__ = _binary("eq", operator.eq)  # type: ignore[assignment]
    __ne__ = _binary("ne", operator.ne)  # type: ignore[assignment]
    __neg__, __pos__ = _unary("neg", operator.neg), _unary("positive", operator.pos)
    __invert__, __abs__ = _unary("bitwise_not", operator.invert), _unary("abs", operator.abs)
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise control_flow()

    def __int__(self) -> int:
        raise refusal("`int(x)` needs a Python number", ["write `x.int()` or `x.to(torch.int32)`"])

    def __index__(self) -> int:
        raise refusal("a value that differs from score to score cannot index a list or be a size",
                      ["capture a tensor with the list's elements and index that"])

    def __float__(self) -> float:
        raise refusal("`float(x)` and the functions of `math` need a Python number",
                      ["write `x.float()`, and `torch.exp(x)` for `math.exp(x)`"])

    def __floor__(self) -> Any:
        return self._whole("floor")

    def __ceil__(self) -> Any:
        return self._whole("ceil")

    def __trunc__(self) -> Any:
        return self._whole("trunc")

    def _whole(self, name: str) -> Any:
        value = self._tracer.call(name, self)
        return self._tracer.call("int", value) if value.node.type == REAL else value

    def __round__(self, digits: int | None = None) -> Any:
        return self._tracer.call("round", self)

    def __iter__(self) -> Any:
        raise refusal("a value of one score cannot be iterated over")

    def __len__(self) -> int:
        raise refusal("a value of one score has no length")

    def __getitem__(self, index: Any) -> Any:
        if index is Ellipsis or index == ():
            return self
        raise refusal("the value of one score has no dimensions to index",
                      ["captured tensors have: `table[q_idx]`"])

    def __setitem__(self, index: Any, value: Any) -> None:
        raise refusal("a mod cannot write to tensors", ["write `torch.where(condition, new, old)`"])

    def __repr__(self) -> str:
        from attn.tracing.writing import text_of
        return text_of(self.node)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    @property
    def dtype(self) -> Any:
        """The type that PyTorch gives such a value: a narrow integer's own, else bool, int32 or float32."""
        import torch
        if self.narrow:
            return getattr(torch, self.narrow)
        if self.has_64_bits:
            return torch.int64
        return {BOOL: torch.bool, INT: torch.int32, REAL: torch.float32}[self.node.type]

    @property
    def device(self) -> Any:
        """The CPU, whatever device the call will run on."""
        import torch
        return torch.device("cpu")

    @property
    def shape(self) -> tuple[int, ...]:
        """(size,) of a value over an index that a reduction goes over, else ()."""
        size = self.node.size
        return (size,) if size else ()

    @property
    def ndim(self) -> int:
        """The number of dimensions: 0 or 1."""
        return len(self.shape)

    @property
    def requires_grad(self) -> bool:
        """False: gradients are derived from the expression."""
        return False

    @property
    def is_cuda(self) -> bool:
        """False, as `device` says."""
        return False

    def dim(self) -> int:
        """The number of dimensions, as `ndim`."""
        return self.ndim

    def size(self, axis: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        return self.shape if axis is None else self.shape[axis]

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


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


def _flat(values: Any) -> list[Any]:
    found = []
    for value in values:
        found += _flat(value) if isinstance(value, (list, tuple)) else [value]
    return found


def has_values(values: Any) -> bool:
    """Whether any of the arguments, which may be nested in lists, is traced."""
    return any(isinstance(value, Value) for value in _flat(values))


def has_other_values(values: Any) -> bool:
    """Whether something depends on a score's indexes."""
    return any(isinstance(value, Value) and value.recipe is None for value in _flat([values]))


def tensors_in(values: Any) -> list[Any]:
    """The tensors among the arguments, which may be nested in lists; no arrays."""
    return [value for value in _flat(values) if is_tensor(value) and not is_array(value)]
