"""The functions of torch and NumPy that mods may call, by their names, and the errors of others."""
from __future__ import annotations

from typing import Any, Callable, TypeVar

from attn.errors import TraceError
from attn.tracing.places import refusal

Function = TypeVar("Function", bound=Callable[..., Any])

_TABLE: dict[str, Callable[..., Any]] = {}

_RANDOM = ("rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal", "poisson",
           "rand_like", "randn_like", "randint_like", "dropout", "alpha_dropout", "feature_dropout")
READS_VALUES = ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__complex__",
                "__contains__", "equal", "allclose", "is_nonzero", "__array__")
_OF_ROWS = ("softmax", "log_softmax", "logsumexp", "cumsum", "cumprod", "sort", "argsort", "topk",
            "argmax", "argmin", "std", "var", "median", "norm", "prod")
_INSTEAD = {
    "item": "the mod is traced for all scores at once: compute with the value itself",
    "tolist": "the mod is traced for all scores at once: compute with the value itself",
    "numpy": "the mod is traced for all scores at once: compute with the value itself",
    "stack": "scores are computed one by one, so write an expression for one score",
    "cat": "scores are computed one by one, so write an expression for one score",
    "nonzero": "write a condition",
    "tensor": "compute with the value itself",
}


def define(*names: str) -> Callable[[Function], Function]:
    """Decorates the function that traces operations of these names, as PyTorch and Python call them."""

    def register(function: Function) -> Function:
        for name in names:
            _TABLE[name] = function
        return function
    return register


def find(name: str) -> Callable[..., Any] | None:
    """The function that traces the operation of this name, or None."""
    return _TABLE.get(name)


def name_of(func: Any) -> str:
    """"add" for torch.add, Tensor.add, Tensor.__add__ and torch.ops.aten.add.Tensor."""
    schema = getattr(func, "_schema", None)
    name = schema.name.split("::")[-1] if schema else getattr(func, "__name__", str(func))
    if name.startswith("__") and name.endswith("__"):
        return _DUNDER.get(name, name)
    return name.removeprefix("special_")


def of_operator(method: str) -> str:
    """The name of what an operator does, by its special method."""
    return _DUNDER[method]


_DUNDER = {
    "__or__": "bitwise_or", "__and__": "bitwise_and", "__xor__": "bitwise_xor", "__invert__": "bitwise_not",
    "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift", "__floordiv__": "floor_divide",
    "__mod__": "remainder", "__pow__": "pow", "__truediv__": "true_divide", "__matmul__": "dot",
    "__add__": "add", "__sub__": "sub", "__mul__": "mul", "__neg__": "neg", "__eq__": "eq", "__ne__": "ne",
    "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__abs__": "abs", "__rsub__": "rsub",
    "__pos__": "positive",
    "__rpow__": "rpow", "__radd__": "add", "__rmul__": "mul", "__rmod__": "rremainder",
    "__rtruediv__": "rdiv", "__rdiv__": "rdiv", "__rfloordiv__": "rfloor_divide",
    "__rlshift__": "rlshift", "__rrshift__": "rrshift",
    "__ror__": "bitwise_or", "__rand__": "bitwise_and", "__rxor__": "bitwise_xor",
}


def is_random(name: str) -> bool:
    """Whether the operation of this name draws random numbers."""
    return name in _RANDOM


def is_in_place(name: str) -> bool:
    """Whether the operation of this name writes to its operand."""
    return name.endswith("_") and not name.endswith("__") or name == "__setitem__" or (
        name.startswith("__i") and name.endswith("__") and name[3:-2] in (
            "add", "sub", "mul", "truediv", "and", "or", "xor", "div"))


def random_error() -> TraceError:
    """The error of a mod that draws random numbers."""
    return refusal("a mod cannot draw random numbers",
                   ["random dropout is an option: dropout=0.1, or dropout_p in attn.torch",
                    "or capture a tensor that holds the numbers"])


def in_place_error(name: str) -> TraceError:
    """The error of a mod that writes to a tensor by the operation of this name."""
    notes = ["write `torch.where(condition, new, old)`"]
    if name.endswith("_") and not name.endswith("__"):
        notes = [f"write `x = x.{name[:-1]}(..)`"]
    return refusal(f"a mod cannot write to tensors (`{name}`)", notes)


def reading_error(name: str) -> TraceError:
    """The error of a mod that reads the value of the captured tensor of this name."""
    return refusal(f"the mod reads the value of the captured tensor `{name}`,"
                   " which would be fixed in the spec", ["compute with the tensor, or capture a number"])


def unknown(name: str) -> TraceError:
    """The error of an operation that cannot be traced, with what to write instead if that is known."""
    if is_random(name):
        return random_error()
    if is_in_place(name):
        return in_place_error(name)
    if name in _OF_ROWS:
        return refusal(f"`{name}` needs more than one score, a mod sees one at a time",
                       ["a softmax always follows the mod"])
    return refusal(f"`{name}` cannot be traced",
                   [_INSTEAD.get(name, "docs/language.md lists the functions of a spec")])
