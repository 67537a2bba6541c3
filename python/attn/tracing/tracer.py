"""The state of one trace: what a mod has computed, and how functions are applied."""
from __future__ import annotations

from typing import Any, Callable, Mapping

from attn.tracing import functions, narrow, origins, wide
from attn.tracing.captures import Captures, is_array, is_tensor
from attn.tracing.expressions import INT, Graph, Mismatch, Node, bounds_of
from attn.tracing.places import refusal
from attn.tracing.recipes import mapped
from attn.tracing.rows import Row, Rows
from attn.tracing.values import Value, flat


class Tracer:
    """The state of one trace: the expressions made so far and the tensors read."""

    def __init__(self, graph: Graph, captures: Captures, sizes: Mapping[str, int]):
        self.graph = graph
        self._sizes = sizes
        self.local_names: dict[int, str] = {}  # of nodes, by the user's variables
        self.indexed: list[origins.Indexed] = []
        self.opaque: str | None = None  # as a Watch has it
        self.rows = Rows(self, captures)

    def node(self, value: Any) -> Node:
        """The expression of anything that a mod may compute with."""
        if isinstance(value, Value):
            return value.node
        if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
            return self.constant(value.item())
        if isinstance(value, (bool, int, float)):
            return self.constant(value)
        if is_tensor(value):
            return self.rows.of(value).node
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

    def wrap(self, node: Node) -> Value:
        """The node as what a mod computes with."""
        return Value(self, node)

    def bounds(self, node: Node) -> tuple[int, int] | None:
        """The least and the largest value of an integer, as far as that is easily seen."""
        return bounds_of(node, self._sizes)

    def apply(self, function: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        """A function of values. One of captured arrays alone is computed with the arrays."""
        values = [value for value in flat([*args, *kwargs.values()]) if isinstance(value, Value)]
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
        return self.rows.derive(function, name, args, kwargs, result, True)

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
        return value if isinstance(value, Value) else self.rows.of(value)


def _value_of(value: Any) -> Any:
    return value.value if isinstance(value, Row) else value
