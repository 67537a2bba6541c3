"""The arguments of a call: names and sizes, of arrays and of torch tensors."""
from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from .errors import BindingError

INPUTS = ("q", "k", "v")
RANDOM = ("seed", "offset")


class Sizes(NamedTuple):
    B: int
    Hq: int
    Hkv: int
    Sq: int
    Skv: int
    Dqk: int
    Dv: int


def named(captured: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name: `args` are q, k and v, `kwargs` replace captured tensors."""
    if len(args) > len(INPUTS):
        raise BindingError(f"{len(args)} tensors without names were given: only q, k and v may have none")
    given = {**captured, **kwargs}
    for name, value in zip(INPUTS, args):
        if name in kwargs:
            raise BindingError(f"{name} was given twice")
        given[name] = value
    return given


def check_names(attention: str, given: Mapping[str, Any], wanted: Sequence[str],
                optional: Sequence[str] = ()) -> None:
    """Raises BindingError for names that the attention does not have, and for those that are missing."""
    for name in given:
        if name not in wanted and name not in optional:
            raise BindingError(f"`{attention}` has no input `{name}`",
                               [f"it takes {', '.join([*wanted, *optional])}"])
    missing = [name for name in wanted if name not in given]
    if missing:
        how = "" if missing[-1] in INPUTS else f": f(q, k, v, {missing[-1]}=..)"
        raise BindingError(f"{' and '.join(missing)} must be given{how}")


def number(name: str, value: Any) -> float | int:
    """The value of a param. Raises BindingError if it is not a number."""
    if isinstance(value, (int, float)):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BindingError(f"{name} is a param: it must be a number, not {type(value).__name__}") from None


def sizes_of(q: Any, k: Any, v: Any) -> Sizes:
    """The sizes of q [B, Hq, Sq, Dqk], k [B, Hkv, Skv, Dqk] and v [B, Hkv, Skv, Dv].

    Raises BindingError if they do not fit together."""
    for name, tensor in zip(INPUTS, (q, k, v)):
        if len(tensor.shape) != 4:
            shape = "[B, Hq, Sq, D]" if name == "q" else "[B, Hkv, Skv, D]"
            raise BindingError(f"{name} has shape {list(tensor.shape)}; it must be {shape}")
    batch, heads, rows, depth = q.shape
    if tuple(k.shape[:3]) != tuple(v.shape[:3]):
        raise BindingError(
            f"k has shape {list(k.shape)} and v {list(v.shape)}: B, Hkv and Skv must be the same in both")
    if k.shape[0] != batch:
        raise BindingError(f"q has {batch} batches, but k and v have {k.shape[0]}: expand k and v")
    if k.shape[3] != depth:
        raise BindingError(f"q has rows of {depth} elements, but k of {k.shape[3]}: D must be the same")
    key_heads = k.shape[1]
    if key_heads == 0 or heads % key_heads != 0:
        raise BindingError(
            f"q has {heads} heads, which is not a multiple of the {key_heads} heads of k and v")
    return Sizes(batch, heads, key_heads, rows, k.shape[2], depth, v.shape[3])
