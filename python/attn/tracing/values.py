"""What a mod computes with while it is traced: values that stand for one score each."""
from __future__ import annotations

import math
import operator
import sys
from typing import TYPE_CHECKING, Any, Callable

from attn.tracing import functions
from attn.tracing.captures import is_array, is_tensor
from attn.tracing.expressions import BOOL, INT, REAL, Node, is_wide
from attn.tracing.places import control_flow, refusal
from attn.tracing.recipes import Recipe

if TYPE_CHECKING:
    from attn.tracing.tracer import Tracer


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
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        tracer = next(value._tracer for value in flat([*args, *(kwargs or {}).values()])
                      if isinstance(value, Value))
        return tracer.call(functions.name_of(func), *args, **(kwargs or {}))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs.get("out") is not None:
            raise refusal(f"`numpy.{ufunc.__name__}.{method}` cannot be traced")
        return self._tracer.apply(ufunc, ufunc.__name__, *inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._tracer.apply(func, func.__name__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if functions.find(name) is None:
            raise functions.unknown(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            return self._tracer.call(name, self, *args, **kwargs)
        return method

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
        """The type that PyTorch gives such a value: a narrow integer's own, else bool, int32 or float32; NumPy's type
        of this name where PyTorch was not imported."""
        name = "int64" if self.has_64_bits else {BOOL: "bool", INT: "int32", REAL: "float32"}[self.node.type]
        torch = sys.modules.get("torch")
        if torch is not None:
            return getattr(torch, self.narrow or name)
        import numpy
        return numpy.dtype(self.narrow or name)

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


def _whole(name: str) -> Callable[..., Any]:
    def apply(self: Value) -> Any:
        value = self._tracer.call(name, self)
        return self._tracer.call("int", value) if value.node.type == REAL else value
    return apply


def _operator(method: str, is_reflected: bool = False) -> Callable[..., Any]:
    function, name = getattr(operator, method), functions.of_operator(method)

    def apply(self: Value, *others: Any) -> Any:
        return self._tracer.apply(function, name, *((*others, self) if is_reflected else (self, *others)))
    return apply


for _name in "add sub mul truediv floordiv mod pow lshift rshift and or xor matmul".split():
    setattr(Value, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(Value, f"__r{_name}__", _operator(f"__{_name}__", is_reflected=True))
for _name in ("floor", "ceil", "trunc"):
    setattr(Value, f"__{_name}__", _whole(_name))
for _name in "lt le gt ge eq ne neg pos invert abs".split():
    setattr(Value, f"__{_name}__", _operator(f"__{_name}__"))


def flat(values: Any) -> list[Any]:
    """The arguments, with those that are nested in lists and tuples."""
    found = []
    for value in values:
        found += flat(value) if isinstance(value, (list, tuple)) else [value]
    return found


def has_values(values: Any) -> bool:
    """Whether any of the arguments, which may be nested in lists, is traced."""
    return any(isinstance(value, Value) for value in flat(values))


def has_other_values(values: Any) -> bool:
    """Whether something depends on a score's indexes."""
    return any(isinstance(value, Value) and value.recipe is None for value in flat([values]))


def tensors_in(values: Any) -> list[Any]:
    """The tensors among the arguments, which may be nested in lists; no arrays."""
    return [value for value in flat(values) if is_tensor(value) and not is_array(value)]
