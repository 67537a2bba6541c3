"""The order of the dimensions of tensors in Python: [B, H, S, D], whatever a spec's `layout` clause says of
memory, unless `layout="bshd"` says [B, S, H, D]."""
from __future__ import annotations

import warnings
from math import gcd
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from ._attnc import outside
from .arguments import INPUTS, ORDERS, Sizes, named, order_note, sizes_of
from .errors import ArgumentError, BindingError, SpecWarning
from .reference import as_array
from .specs import Spec

USUAL_HEADS = 256  # of k, at most; what has more, and fewer keys, is likely [B, S, H, D]


class Expected(NamedTuple):
    """What a spec and the sizes given to `attn.compile` say of q, k, v and o.

    title      the name of the attention
    outputs    names of what a call returns
    located    whether other tensors locate rows, so that their order is no choice
    heads      how many heads of q share how many of k, without a common divisor, or None if that is open
    aligned    whether Skv is Sq
    query      Hq and Sq, None where they are open"""

    title: str
    outputs: tuple[str, ...]
    located: bool
    heads: tuple[int, int] | None
    aligned: bool
    query: tuple[int | None, int | None]


def checked(layout: str | None) -> str | None:
    """Raises ArgumentError if it is no order of dimensions."""
    if layout is not None and layout not in ORDERS:
        notes = ["packed sequences have `layout thd` in their spec"] if layout == "thd" else []
        raise ArgumentError(f"layout is {layout!r}; it must be \"bhsd\" (q is [B, Hq, Sq, D]) or \"bshd\" "
                            "(q is [B, Sq, Hq, D])", notes)
    return layout


def expected(spec: Spec, bindings: Mapping[str, Any]) -> Expected:
    """What tensors the attention takes with these bindings, for messages about tensors that do not fit. Sizes
    that are open are None."""
    sizes, dims = spec.sizes(bindings), spec.dims
    given = {*bindings}
    of_query = tuple(sizes[dim] if isinstance(sizes[dim], int) else None for dim in ("Hq", "Sq"))
    aligned = "Skv" not in given and dims["Skv"] == "Sq"
    located = any(_is_located(clause.get("layout")) for clause in spec.tree["clauses"])
    return Expected(spec.name, spec.outputs, located, _shared(sizes, dims, given), aligned,
                    of_query)  # type: ignore[arg-type]


def _is_located(layout: Any) -> bool:
    """Whether the tree of a layout clause is `thd`, or has pages."""
    return layout == "thd" or (isinstance(layout, Mapping) and "'paged'" in str(layout))


def _shared(sizes: Mapping[str, Any], dims: Mapping[str, Any], given: set[str]) -> tuple[int, int] | None:
    written = dims["Hkv"]
    if "Hkv" not in given:
        if written == "Hq":
            return 1, 1
        if isinstance(written, Mapping) and written.get("op") in ("/", "//"):
            whole, part = written["args"]
            if whole == "Hq" and isinstance(part, int) and part > 0:
                return part, 1
    heads, key_heads = sizes["Hq"], sizes["Hkv"]
    if not isinstance(heads, int) or not isinstance(key_heads, int) or key_heads <= 0:
        return None
    common = gcd(heads, key_heads)
    return heads // common, key_heads // common


def check(said: Expected, sizes: Sizes, layout: str | None) -> None:
    """Raises BindingError if the sizes, read from tensors in this order, contradict what the spec says.

    `layout`: None if nobody said the order; then also tensors are refused that fit the spec only in the other
    one, and SpecWarning is issued where k has more heads than keys, and than any model."""
    order = layout or "bhsd"
    notes = [order_note(order)]
    heads, rows = said.query
    if heads != rows and (sizes.Sq, sizes.Hq) == (heads, rows):
        raise BindingError(f"q has {sizes.Hq} heads and {sizes.Sq} rows, and `{said.title}` {heads} heads and "
                           f"{rows} rows: are its dimensions in another order?", notes)
    if said.heads is not None and sizes.Hq * said.heads[1] != sizes.Hkv * said.heads[0]:
        raise BindingError(
            f"q has {sizes.Hq} heads and k {sizes.Hkv}, but in `{said.title}` {_sharing(said.heads)}",
            [*notes, f"for these numbers: attn.compile(.., Hq={sizes.Hq}, Hkv={sizes.Hkv})"])
    unlikely = said.heads is None or sizes.Hq > sizes.Sq
    if layout is None and said.aligned and unlikely and _fits_other(sizes):
        raise BindingError(
            f"q has {sizes.Sq} rows and k {sizes.Skv}, but in `{said.title}` Skv is Sq: are they [B, S, H, D]?",
            [*notes, f"for these numbers: attn.compile(.., Skv={sizes.Skv}), or layout=\"bhsd\""])
    if layout is None and sizes.Hkv > max(USUAL_HEADS, sizes.Skv):
        warnings.warn(f"k has {sizes.Hkv} heads and {sizes.Skv} keys, read as [B, H, S, D]: if it is [B, S, H, D], "
                      "say layout=\"bshd\", to attn.compile or in the call; if not, layout=\"bhsd\"",
                      SpecWarning, stacklevel=outside())


def _sharing(heads: tuple[int, int]) -> str:
    of_query, of_keys = heads
    if of_query == of_keys:
        return "Hkv is Hq"
    return f"{of_query} heads share {'one' if of_keys == 1 else of_keys}"


def _fits_other(sizes: Sizes) -> bool:
    """Whether rows are as many as keys, and heads are shared, if heads are rows and rows are heads. Cross
    attention may look so too, but has seldom fewer rows than heads."""
    return sizes.Hq == sizes.Hkv and sizes.Sq != sizes.Skv and sizes.Skv > 0 and sizes.Sq % sizes.Skv == 0


def call(function: Callable[..., Any], said: Expected, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`function` of q, k and v [B, H, S, D], for tensors [B, S, H, D]: o is [B, Sq, Hq, Dv] then, and what has
    one number for each row stays [B, Hq, Sq]."""
    if said.located:
        raise ArgumentError(f"`{said.title}` has packed sequences or pages, to which layout= does not apply",
                            ["packed tensors are [T, H, D], a pool of pages is [pages, Hkv, page, D]"])
    given = named({}, args, kwargs)
    tensors = {name: _with_shape(name, given.pop(name)) for name in INPUTS if name in given}
    if len(tensors) == len(INPUTS):
        check(said, sizes_of(*tensors.values(), layout="bshd"), "bshd")
    found = function(**{name: swapped(x) for name, x in tensors.items()}, layout="bhsd", **given)
    if not isinstance(found, tuple):
        return swapped(found) if said.outputs[0] == "o" else found
    return tuple(swapped(x) if name == "o" else x for name, x in zip(said.outputs, found))


def gradients(attention: Any, args: Sequence[Any], do: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """`attention.gradients` for arrays [B, S, H, D]: those of q, k and v have this order too."""
    given = {name: swapped(as_array(name, x)) if name in INPUTS else x
             for name, x in named({}, args, kwargs).items()}
    found = attention.gradients(**given, do=swapped(do), layout="bhsd")
    return {name: swapped(x) if name in INPUTS else x for name, x in found.items()}


def _with_shape(name: str, value: Any) -> Any:
    return value if hasattr(value, "swapaxes") else as_array(name, value)


def swapped(tensor: Any) -> Any:
    """The tensor or array with rows for heads and heads for rows: a view."""
    return tensor.swapaxes(1, 2)
