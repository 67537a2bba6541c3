"""The plan file of a variant of an attention: that of the attention if it has the variant, else a new one."""

from __future__ import annotations

from typing import NamedTuple

from attn import _libattn
from attn.arguments import order_note
from attn.attention import Attention
from attn.errors import PlanDeviceError, UnsupportedError
from attn.forms import Form, edits_of, places_in

HOW_TO_BUILD = (
    "f.warm(..) compiles it before the call; attn.compile(.., builds=True) and attn.load(..,"
    " recompile=True) allow calls to"
)


class Found(NamedTuple):
    """A plan file, its contents, and where it has the forward ("fwd") and the backward ("bwd") of a variant."""

    file: _libattn.PlanFile
    contents: bytes
    places: dict[str, int]


def find(attention: Attention, form: Form | None, training: bool, sm: int, *, builds: bool, target: str = "native",
         deterministic: bool = False) -> Found:
    """The plans of a form, for GPUs of compute capability `sm` / 10, with the backward if `training`. Without a form:
    of the sizes that the spec and the bindings give, since q, k and v say less.

    `builds`: whether they are compiled, for `target`, if the attention has none. `deterministic`: gradients must be
    bitwise the same in every run. Raises UnsupportedError or PlanDeviceError if there are none, and what
    `attn.compile` does."""
    said, given = attention.described, attention._contents  # what was not compiled yet may be of no use
    repeatable = not training or said.facts["deterministic"] or not deterministic
    if given and repeatable:
        file = _libattn.PlanFile(given)
        places = places_in(file, form, sm)
        if places.keys() >= ({"fwd", "bwd"} if training else {"fwd"}):
            return Found(file, given, places)
    if form is None:
        _check_sizes(attention, sm, repeatable)
    if not builds:
        _refuse_to_build(attention, form, training, sm)
    built = attention.build(None if form is None else form.sizes._asdict(),
                            edits=() if form is None else edits_of(form),
                            direction="both" if training else "fwd", target=target)
    file = _libattn.PlanFile(built)
    places = places_in(file, form, sm)
    if "fwd" not in places and form is not None:
        raise UnsupportedError(f"`{attention.name}` was compiled, but not for these strides: {form.layouts}")
    return Found(file, built, places)


def _check_sizes(attention: Attention, sm: int, repeatable: bool) -> None:
    """Raises UnsupportedError if a plan of packed sequences or pages lacks what q, k and v do not say."""
    said = attention.described
    if not repeatable:
        raise UnsupportedError(
            f"the gradients of `{said.name}` are not bitwise the same in every run",
            ["add the clause `deterministic` to the spec"],
        )
    if said.open:
        raise UnsupportedError(
            f"`{said.name}` has no plan for this GPU (sm_{sm}), and q, k and v do not give all sizes of its"
            " layout",
            [f"give {', '.join(said.open)} to attn.compile"],
        )


def _refuse_to_build(attention: Attention, form: Form | None, training: bool, sm: int) -> None:
    _check_target(attention, sm)
    name = attention.name
    if form is None:
        raise UnsupportedError(
            f"`{name}` has no plan for this GPU (sm_{sm}), and calls may not compile one", [HOW_TO_BUILD]
        )
    what = "training (forward and backward)" if training else "a forward"
    raise UnsupportedError(
        f"`{name}` has no plan for {what} with these sizes, strides and dtype on this GPU (sm_{sm})",
        [
            f"asked for: {form.sizes._asdict()}, {form.dtype},{' deterministic,' * form.deterministic}"
            f" q {form.layouts[0]}, k {form.layouts[1]}, v {form.layouts[2]}",
            order_note("bhsd"),
            HOW_TO_BUILD,
        ],
    )


def _check_target(attention: Attention, sm: int) -> None:
    """Raises PlanDeviceError if all plans of a file are for other GPUs."""
    targets = {f"{info.target} (sm_{info.sm})" for info in attention.plans}
    if targets and all(info.sm != sm for info in attention.plans):
        raise PlanDeviceError(
            f"the plan file of `{attention.name}` is for {' and '.join(sorted(targets))}, and this GPU is"
            f" sm_{sm}",
            ["attn.load(path, recompile=True) compiles its spec again"],
            "plan_device",
        )
