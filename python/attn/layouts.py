"""The order of the dimensions of tensors in Python: [B, H, S, D], whatever a spec's `layout` clause says of
memory, unless `layout="bshd"` says [B, S, H, D]."""
from __future__ import annotations

import warnings
from typing import Any, Callable, Mapping, NoReturn, Sequence

from ._attnc import outside
from .arguments import INPUTS, ORDERS, Sizes, named, order_note, sizes_of
from .errors import ArgumentError, BindingError, SpecWarning
from .outputs import is_o
from .reference import as_array
from .specs import Description

USUAL_HEADS = 256  # of k, at most; what has more, and fewer keys, is likely [B, S, H, D]


def checked(layout: str | None) -> str | None:
    """Raises ArgumentError if it is no order of dimensions."""
    if layout is not None and layout not in ORDERS:
        notes = ["packed sequences have `layout thd` in their spec"] if layout == "thd" else []
        raise ArgumentError(f"layout is {layout!r}; it must be \"bhsd\" (q is [B, Hq, Sq, D]) or \"bshd\" "
                            "(q is [B, Sq, Hq, D])", notes)
    return layout


def check(said: Description, sizes: Sizes, layout: str | None) -> None:
    """Raises BindingError if the sizes, read from tensors in this order, contradict what the spec says.

    `layout`: None if nobody said the order; then also tensors are refused that fit the spec only in the other
    one, and SpecWarning is issued where k has more heads than keys, and than any model."""
    order = layout or "bhsd"
    notes = [order_note(order)]
    heads, rows, group = said.sizes["Hq"], said.sizes["Sq"], said.facts["group"]
    if heads != rows and (sizes.Sq, sizes.Hq) == (heads, rows):
        raise BindingError(f"q has {sizes.Hq} heads and {sizes.Sq} rows, and `{said.name}` {heads} heads and "
                           f"{rows} rows: are its dimensions in another order?", notes)
    if group is not None and sizes.Hq != sizes.Hkv * group:
        raise BindingError(
            f"q has {sizes.Hq} heads and k {sizes.Hkv}, but in `{said.name}` "
            + ("Hkv is Hq" if group == 1 else f"{group} heads share one"),
            [*notes, f"for these numbers: attn.compile(.., Hq={sizes.Hq}, Hkv={sizes.Hkv})"])
    unlikely = group is None or sizes.Hq > sizes.Sq
    if layout is None and said.facts["aligned"] and unlikely and _fits_other(sizes):
        raise BindingError(
            f"q has {sizes.Sq} rows and k {sizes.Skv}, but in `{said.name}` Skv is Sq: are they [B, S, H, D]?",
            [*notes, f"for these numbers: attn.compile(.., Skv={sizes.Skv}), or layout=\"bhsd\""])
    if layout is None and sizes.Hkv > max(USUAL_HEADS, sizes.Skv):
        warnings.warn(f"k has {sizes.Hkv} heads and {sizes.Skv} keys, read as [B, H, S, D]: if it is [B, S, H, D], "
                      "say layout=\"bshd\", to attn.compile or in the call; if not, layout=\"bhsd\"",
                      SpecWarning, stacklevel=outside())


def refuse_order(said: Description) -> NoReturn:
    """Raises ArgumentError: the order of dimensions was said where other tensors locate rows."""
    raise ArgumentError(f"`{said.name}` has packed sequences or pages, to which layout= does not apply",
                        ["packed tensors are [T, H, D], a pool of pages is [pages, Hkv, page, D]"])


def _fits_other(sizes: Sizes) -> bool:
    """Whether rows are as many as keys, and heads are shared, if heads are rows and rows are heads. Cross
    attention may look so too, but has seldom fewer rows than heads."""
    return sizes.Hq == sizes.Hkv and sizes.Sq != sizes.Skv and sizes.Skv > 0 and sizes.Sq % sizes.Skv == 0


def call(function: Callable[..., Any], said: Description, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`function` of q, k and v [B, H, S, D], for tensors [B, S, H, D]: o is [B, Sq, Hq, Dv] then, and what has
    one number for each row stays [B, Hq, Sq]."""
    if said.located:
        refuse_order(said)
    given = named({}, args, kwargs)
    if said.held and given.get("v") is None:
        given.pop("v", None)
    tensors = {name: _with_shape(name, given.pop(name)) for name in INPUTS if name in given}
    if len(tensors) == len(INPUTS):
        check(said, sizes_of(*tensors.values(), layout="bshd"), "bshd")
    found = function(**{name: swapped(x) for name, x in tensors.items()}, layout="bhsd", **given)
    if not isinstance(found, tuple):
        return swapped(found) if is_o(said.outputs[0]) else found
    return tuple(swapped(x) if is_o(name) else x for name, x in zip(said.outputs, found))


def gradients(attention: Any, args: Sequence[Any], do: Any, dlse: Any,
              kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """`attention.gradients` for arrays [B, S, H, D]: those of q, k and v have this order too."""
    given = {name: swapped(as_array(name, x)) if name in INPUTS else x
             for name, x in named({}, args, kwargs).items()}
    found = attention.gradients(**given, do=swapped(do), dlse=dlse, layout="bhsd")
    return {name: swapped(x) if name in INPUTS else x for name, x in found.items()}


def _with_shape(name: str, value: Any) -> Any:
    return value if hasattr(value, "swapaxes") else as_array(name, value)


def swapped(tensor: Any) -> Any:
    """The tensor or array with rows for heads and heads for rows: a view."""
    return tensor.swapaxes(1, 2)
