"""The arguments of a call: names and sizes, of arrays and of torch tensors."""
from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from . import hints
from .errors import BindingError

INPUTS = ("q", "k", "v")
RANDOM = ("seed", "offset")


class Sizes(NamedTuple):
    """The sizes of an attention: batches, heads and numbers of q (Hq, Sq), heads and numbers of k and v (Hkv,
    Skv), and elements of a row of q and k (Dqk) and of v and o (Dv)."""

    B: int
    Hq: int
    Hkv: int
    Sq: int
    Skv: int
    Dqk: int
    Dv: int


def extent(text: str, sizes: Mapping[str, Any]) -> Any:
    """The size of a dimension that the compiler describes: a number, a name or an expression of sizes, such as
    "(Skv + 127) // 128". Raises NameError for a size that is not given."""
    return eval(text, {"__builtins__": {}}, dict(sizes))


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


def width_of_values(attention: str, sizes: Mapping[str, Any], given: dict[str, Any]) -> int:
    """Dv of an attention whose v is the first columns of k: takes v, which is no argument of its calls, but may be
    None, out of `given`. Raises BindingError for a v, and where Dv is not known."""
    if given.pop("v", None) is not None:
        raise BindingError(f"in `{attention}` v is a part of k, by its clause `values`: give q and k",
                           ["v may be None, or left out"])
    if not isinstance(sizes["Dv"], int):
        raise BindingError(f"how many columns of k are v is not known: `{attention}` leaves Dv open",
                           ["attn.compile(.., Dv=512), or `values k[0..512];` in the spec"])
    return sizes["Dv"]


def first_columns(k: Any, width: int) -> Any:
    """The view of k that is v; k itself, where it has no columns and an error will say so."""
    return k[..., :width] if len(k.shape) > 0 else k


def check_names(attention: str, given: Mapping[str, Any], wanted: Sequence[str],
                optional: Sequence[str] = ()) -> None:
    """Raises BindingError for names that the attention does not have, and for those that are missing."""
    for name in given:
        if name not in wanted and name not in optional:
            raise BindingError(f"`{attention}` has no input `{name}`",
                               [*hints.of_argument(name), f"it takes {', '.join([*wanted, *optional])}"])
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


# The dimensions of q, k and v in each order of tensors in Python.
ORDERS = {"bhsd": ("B", "H", "S", "D"), "bshd": ("B", "S", "H", "D")}


def order_note(layout: str) -> str:
    """What an error about sizes says of the order in which they were read."""
    if layout == "bshd":
        return "by layout=\"bshd\", tensors are [B, S, H, D]; without it they are [B, H, S, D]"
    return ("tensors in Python are [B, H, S, D], whatever the spec's `layout` says of memory; "
            "layout=\"bshd\" takes [B, S, H, D]")


def sizes_of(q: Any, k: Any, v: Any, *, layout: str = "bhsd", note: str | None = None) -> Sizes:
    """The sizes of q [B, Hq, Sq, Dqk], k [B, Hkv, Skv, Dqk] and v [B, Hkv, Skv, Dv], or of [B, S, H, D].

    `note`: what errors say of the order, instead of `order_note`. Raises BindingError if they do not fit
    together."""
    notes = [order_note(layout) if note is None else note]
    head, row = ORDERS[layout].index("H"), ORDERS[layout].index("S")
    for name, tensor in zip(INPUTS, (q, k, v)):
        if len(tensor.shape) != 4:
            which = "q" if name == "q" else "kv"
            shape = ", ".join(dim + which if dim in "HS" else dim for dim in ORDERS[layout])
            raise BindingError(f"{name} has shape {list(tensor.shape)}; it must be [{shape}]", notes)
    batch, heads, rows, depth = q.shape[0], q.shape[head], q.shape[row], q.shape[3]
    key_heads, keys = k.shape[head], k.shape[row]
    if tuple(k.shape[:3]) != tuple(v.shape[:3]):
        raise BindingError(
            f"k has shape {list(k.shape)} and v {list(v.shape)}: B, Hkv and Skv must be the same in both",
            notes)
    if k.shape[0] != batch:
        raise BindingError(f"q has {batch} batches, but k and v have {k.shape[0]}: expand k and v", notes)
    if k.shape[3] != depth:
        raise BindingError(f"q has rows of {depth} elements, but k of {k.shape[3]}: D must be the same", notes)
    if key_heads == 0 or heads % key_heads != 0:
        raise BindingError(
            f"q has {heads} heads, which is not a multiple of the {key_heads} heads of k and v", notes)
    return Sizes(batch, heads, key_heads, rows, keys, depth, v.shape[3])
