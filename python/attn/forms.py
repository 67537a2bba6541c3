"""What distinguishes the plans of one spec: sizes, dtype and strides, as attnc's options and plan files say them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, Union

from attn import _libattn
from attn.arguments import INPUTS, Sizes

# The dims [B, H, S, D] of each layout in the order of its memory.
NAMED_LAYOUTS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3)}

# Words of a layout clause, or strides.
Layout = Union[str, tuple[int, ...]]


def dense_strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a tensor without gaps whose dims have this order in memory; as PyTorch's also
    where a size is 0."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def same_strides(shape: tuple[int, ...], x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """Whether the strides address the same elements: those of dims of size 1 do not matter."""
    return all(size <= 1 or a == b for size, a, b in zip(shape, x, y))


def layout_of(shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """The layout clause's words for 4 dims with these strides, the last of them contiguous; the strides themselves, if
    a program is traced for sizes that change."""
    shape = tuple(shape)
    for name, order in NAMED_LAYOUTS.items():
        if same_strides(shape, tuple(strides), dense_strides(shape, order)):
            return name
    steps = tuple(step if size > 1 else 1 for size, step in zip(shape, strides))
    return f"strides({', '.join(map(str, steps))})" if all(type(step) is int for step in steps) else steps


class Form(NamedTuple):
    """What distinguishes the plans of one spec. Layouts are those of q, k and v, and of o, as the
    layout clause says them. `held`: v is a part of k, and no input of plans."""

    sizes: Sizes
    dtype: str
    layouts: tuple[Layout, Layout, Layout]
    output: Layout
    deterministic: bool
    held: bool = False
    cache: tuple[str, str] | None = None  # the types of k and v, if q has another one


def type_of(form: Form, name: str) -> str:
    """The type of q, k or v."""
    return form.dtype if form.cache is None or name == "q" else form.cache["kv".index(name)]


def output_shape(sizes: Sizes) -> tuple[int, ...]:
    """The shape of o."""
    return (sizes.B, sizes.Hq, sizes.Sq, sizes.Dv)


def output_strides(form: Form) -> tuple[int, ...]:
    """The strides of o, [B, Hq, Sq, Dv], in elements."""
    return _strides(form.output, output_shape(form.sizes))


def input_strides(form: Form, name: str) -> tuple[int, ...]:
    """The strides of q, k or v, and of its gradient."""
    return _strides(form.layouts["qkv".index(name)], input_shape(form, name))


def _strides(layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(layout, tuple):
        return layout
    if layout in NAMED_LAYOUTS:
        return dense_strides(shape, NAMED_LAYOUTS[layout])
    return tuple(json.loads(layout.removeprefix("strides").replace("(", "[").replace(")", "]")))


def input_shape(form: Form, name: str) -> tuple[int, ...]:
    """The shape of "q", "k" or "v": [B, heads, numbers, elements]."""
    sizes = form.sizes
    if name == "q":
        return (sizes.B, sizes.Hq, sizes.Sq, sizes.Dqk)
    return (sizes.B, sizes.Hkv, sizes.Skv, sizes.Dqk if name == "k" else sizes.Dv)


def edits_of(form: Form) -> list[str]:
    """The options of attnc that give a spec the dtype, the layouts and the determinism of the form."""
    layouts = [(name, layout) for name, layout in zip("qkvo", (*form.layouts, form.output))
               if not (form.held and name == "v")]
    options = ["--dtype", form.dtype, "--layout", ", ".join(f"{name}: {layout}" for name, layout in layouts)]
    return [*options, "--deterministic"] if form.deterministic else options


LSE_GRADIENT = "dlse"  # the input of a backward through lse


def differentiated(gradient: str) -> str:
    """The tensor that an output of a backward is the gradient of: q of dq, table of d_table. Of an amax its
    own name."""
    if gradient.startswith("amax_"):
        return gradient
    return gradient[2:] if gradient.startswith("d_") else gradient[1:]


def places_in(file: _libattn.PlanFile, form: Form | None, sm: int) -> dict[str, int]:
    """Where a plan file has the forward, and perhaps the backward, of a form for this GPU. Without a form: of the
    sizes of its first plan for this GPU, since q, k and v say less."""
    if form is None:
        return file.choose(sm, next((plan.sizes for plan in file.plans if plan.sm == sm), {}))
    tensors = {name: (0, type_of(form, name), input_shape(form, name), input_strides(form, name))
               for name in (INPUTS[:2] if form.held else INPUTS)}
    return file.choose(sm, form.sizes._asdict(), tensors)
