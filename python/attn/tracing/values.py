"""What a mod computes with while it is traced: values that stand for one score each."""
from __future__ import annotations

import math
from typing import Any, Callable

from attn.tracing import functions, origins
from attn.tracing.captures import Capture, Captures, is_array, is_tensor
from attn.tracing.expressions import BOOL, INT, REAL, Graph, Mismatch, Node
from attn.tracing.places import control_flow, refusal


class Tracer:
    """The state of one trace: the expressions made so far and the tensors read."""

    def __init__(self, graph: Graph, captures: Captures):
        self.graph = graph
        self.captures = captures
        self.local_names: dict[int, str] = {}  # of nodes, by the user's variables
        self.indexed: list[origins.Indexed] = []

    def node(self, value: Any) -> Node:
        """The expression of anything that a mod may compute with."""
        if isinstance(value, Value):
            return value.node
        if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
            return self.constant(value.item())
        if isinstance(value, (bool, int, float)):
            return self.constant(value)
        if is_tensor(value):
            return self.row(value).node if self._is_read(value) else self.constant(value.item())
        raise refusal(f"a score cannot be computed with a value of type `{type(value).__name__}`",
                      ["numbers, booleans, tensors and the mod's parameters can be used"])

    def constant(self, value: bool | int | float) -> Node:
        if isinstance(value, complex):
            raise refusal("complex numbers have no meaning in a score")
        if value != value:
            raise refusal("the mod computes with NaN")
        return self.graph.const(value)

    def _is_read(self, tensor: Any) -> bool:
        """Whether it is read at run time; a number that the mod itself makes is a constant."""
        return len(tensor.shape) > 0 or self.captures.is_known(tensor) or (
            bool(getattr(tensor, "requires_grad", False)))

    def row(self, tensor: Any) -> Row:
        whole, indexes = self.captures.whole(tensor)
        capture = self.captures.of(whole)
        if capture.is_scalar:
            indexes = (0,)
        const = self.graph.const
        return Row(self, capture, tuple(None if index is None else const(index) for index in indexes))

    def array(self, array: Any) -> Any:
        """The stand-in of a captured NumPy array."""
        return array if array.dtype.kind in "OUSMm" else self.row(array)

    def wrap(self, node: Node) -> Value:
        return Value(self, node)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Applies a function of torch or NumPy by its name."""
        function = functions.find(name)
        if function is None:
            raise functions.unknown(name)
        try:
            result = function(self, *args, **kwargs)
        except Mismatch as mismatch:
            raise refusal(str(mismatch)) from None
        except TypeError as error:
            if error.__traceback__ and error.__traceback__.tb_next is None:  # the arguments do not fit
                raise refusal(f"`{name}` cannot be traced with these arguments: {error}") from None
            raise
        return self.wrap(result) if isinstance(result, Node) else result


def _binary(name: str) -> Callable:
    def method(self: Value, other: Any) -> Any:
        return self._tracer.call(name, self, other)
    return method


def _reflected(name: str) -> Callable:
    def method(self: Value, other: Any) -> Any:
        return self._tracer.call(name, other, self)
    return method


def _unary(name: str) -> Callable:
    def method(self: Value) -> Any:
        return self._tracer.call(name, self)
    return method


class Value:
    """A number, integer or boolean for each score. Operators and torch's functions make new ones."""

    __array_priority__ = 1000

    def __init__(self, tracer: Tracer, node: Node):
        self._tracer = tracer
        self._node = node

    @property
    def node(self) -> Node:
        return self._node

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        tracer = next(value._tracer for value in _flat([*args, *(kwargs or {}).values()])
                      if isinstance(value, Value))
        return tracer.call(functions.name_of(func), *args, **(kwargs or {}))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs.get("out") is not None:
            raise refusal(f"`numpy.{ufunc.__name__}.{method}` cannot be traced")
        return self._tracer.call(ufunc.__name__, *inputs)

    def __array_function__(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        return self._tracer.call(func.__name__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if functions.find(name) is None:
            raise functions.unknown(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            return self._tracer.call(name, self, *args, **kwargs)
        return method

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("sub"), _reflected("sub")
    __mul__, __rmul__ = _binary("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _binary("true_divide"), _reflected("true_divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _reflected("floor_divide")
    __mod__, __rmod__ = _binary("remainder"), _reflected("remainder")
    __pow__, __rpow__ = _binary("pow"), _reflected("pow")
    __lshift__, __rlshift__ = _binary("bitwise_left_shift"), _reflected("bitwise_left_shift")
    __rshift__, __rrshift__ = _binary("bitwise_right_shift"), _reflected("bitwise_right_shift")
    __and__, __rand__ = _binary("bitwise_and"), _reflected("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or"), _reflected("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor"), _reflected("bitwise_xor")
    __matmul__, __rmatmul__ = _binary("dot"), _reflected("dot")
    __lt__, __le__ = _binary("lt"), _binary("le")
    __gt__, __ge__ = _binary("gt"), _binary("ge")
    __eq__, __ne__ = _binary("eq"), _binary("ne")  # type: ignore[assignment]
    __neg__, __pos__, __invert__, __abs__ = (
        _unary("neg"), _unary("positive"), _unary("bitwise_not"), _unary("abs"))
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
        return self._tracer.call("int", self._tracer.call("floor", self))

    def __ceil__(self) -> Any:
        return self._tracer.call("int", self._tracer.call("ceil", self))

    def __trunc__(self) -> Any:
        return self._tracer.call("int", self)

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
        import torch
        return {BOOL: torch.bool, INT: torch.int32, REAL: torch.float32}[self.node.type]

    @property
    def device(self) -> Any:
        import torch
        return torch.device("cpu")

    @property
    def shape(self) -> tuple[int, ...]:
        size = self.node.size
        return (size,) if size else ()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def requires_grad(self) -> bool:
        return False

    @property
    def is_cuda(self) -> bool:
        return False

    def dim(self) -> int:
        return self.ndim

    def size(self, axis: int | None = None) -> Any:
        return self.shape if axis is None else self.shape[axis]

    def numel(self) -> int:
        return math.prod(self.shape)


class Row(Value):
    """A captured tensor, of which some dimensions are indexed. With all of them it is a number, with all
    but one a vector, which `.sum()`, `.any()` or `torch.dot` reduce."""

    def __init__(self, tracer: Tracer, capture: Capture, indexes: tuple[Node | None, ...]):
        self._tracer = tracer
        self._capture = capture
        self._indexes = indexes

    @property
    def node(self) -> Node:
        free = [axis for axis, index in enumerate(self._indexes) if index is None]
        if len(free) > 1:
            count = len(self._indexes)
            raise refusal(f"`{self._capture.name}` has {count} dimensions, but {count - len(free)} "
                          f"index{'es are' if count - len(free) != 1 else ' is'} given",
                          ["index every dimension: `bias[b, h, q_idx, kv_idx]`"])
        graph = self._tracer.graph
        each = graph.each(self._capture.shape[free[0]]) if free else None
        indexes = tuple(each if index is None else index for index in self._indexes)
        return graph.load(self._capture, indexes)  # type: ignore[arg-type]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(size for size, index in zip(self._capture.shape, self._indexes) if index is None)

    @property
    def device(self) -> Any:
        return getattr(self._capture.value, "device", "cpu")

    @property
    def dtype(self) -> Any:
        return self._capture.value.dtype

    def __len__(self) -> int:
        return self.shape[0] if self.shape else super().__len__()

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        indexes = list(self._indexes)
        given = list(index) if isinstance(index, tuple) else [index]
        free = [axis for axis, old in enumerate(indexes) if old is None]
        if any(one is Ellipsis for one in given):
            at = next(i for i, one in enumerate(given) if one is Ellipsis)
            given[at:at + 1] = [slice(None)] * (len(free) - len(given) + 1)
        if len(given) > len(free):
            count = len(indexes)
            raise refusal(f"`{self._capture.name}` has {count} dimension{'s' if count > 1 else ''}, "
                          f"but {count - len(free) + len(given)} indexes are given")
        for axis, one in zip(free, given):
            indexes[axis] = self._index(one, axis)
        origins.note(self._tracer.indexed, self._capture, free, [indexes[axis] for axis, _ in zip(free, given)])
        row = Row(self._tracer, self._capture, tuple(indexes))
        return row if None in indexes else self._tracer.wrap(row.node)

    def _index(self, given: Any, axis: int) -> Node | None:
        size = self._capture.shape[axis]
        if isinstance(given, slice):
            if given in (slice(None), slice(0, None), slice(0, size), slice(None, size)):
                return None
            raise refusal(f"a part of `{self._capture.name}` by a slice cannot be traced",
                          ["index with an expression, or slice the tensor before the mod"])
        if given is None:
            raise refusal("`None` as an index cannot be traced", ["leave it out: scores have no shape"])
        node = self._tracer.node(given)
        if node.type != INT:
            instead = "torch.where" if node.type == BOOL else "`//` in place of `/`, or `.int()`"
            raise refusal(f"an index of `{self._capture.name}` is a {node.type} number"
                          if node.type == REAL else f"an index of `{self._capture.name}` is a boolean",
                          [f"write {instead}"])
        if node.op == "const":
            if not -size <= node.value < size:
                raise refusal(f"index {node.value} of `{self._capture.name}` is out of range; "
                              f"the dimension has size {size}")
            return self._tracer.graph.const(node.value % size)
        if node.size:
            raise refusal(f"a vector as an index of `{self._capture.name}` cannot be traced")
        return node


def _flat(values: Any) -> list[Any]:
    found = []
    for value in values:
        found += _flat(value) if isinstance(value, (list, tuple)) else [value]
    return found


def has_values(values: Any) -> bool:
    return any(isinstance(value, Value) for value in _flat(values))


def tensors_in(values: Any) -> list[Any]:
    return [value for value in _flat(values) if is_tensor(value) and not is_array(value)]
