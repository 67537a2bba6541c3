"""Variants of one attention: a pair of plans for each combination of sizes, dtype, strides and device."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from attn import _libattn
from attn.arguments import INPUTS, Sizes
from attn.errors import BindingError
from attn.torch.launch import Launch
from attn.torch.signature import NAMED_LAYOUTS, Layout, dense_strides, layout_of, order_of


class Form(NamedTuple):
    """What distinguishes the plans of one spec. Layouts are those of q, k and v, and of o, as the
    layout clause says them."""

    sizes: Sizes
    dtype: str
    layouts: tuple[Layout, Layout, Layout]
    output: Layout
    deterministic: bool


def output_shape(sizes: Sizes) -> tuple[int, ...]:
    """The shape of o."""
    return (sizes.B, sizes.Hq, sizes.Sq, sizes.Dv)


def output_layout(q: torch.Tensor, sizes: Sizes) -> Layout:
    """The layout of o: without gaps, in the order of q's dims, as FlexAttention's."""
    return layout_of(output_shape(sizes), dense_strides(output_shape(sizes), order_of(q)))


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
    layouts = zip("qkvo", (*form.layouts, form.output))
    options = ["--dtype", form.dtype, "--layout", ", ".join(f"{name}: {layout}" for name, layout in layouts)]
    return [*options, "--deterministic"] if form.deterministic else options


class Pair:
    """The launches of one variant. `backward` is None unless it was compiled for training."""

    def __init__(self, file: _libattn.PlanFile, places: Mapping[str, int], device: torch.device):
        self.by_cudnn = file.plans[places["fwd"]].cudnn_version > 0  # the forward
        runtime = _libattn.runtime(device.index or 0)
        self.device = device
        self.forward = Launch(_libattn.Executable(runtime, file, places["fwd"]), device)
        self.backward = None
        if "bwd" in places:
            self.backward = Launch(_libattn.Executable(runtime, file, places["bwd"]), device)

    def run_forward(
        self, tensors: Mapping[str, torch.Tensor], params: Mapping[str, float], lends: bool = False
    ) -> dict[str, torch.Tensor]:
        """Executes the forward on the current stream. Returns its outputs by name, newly allocated by PyTorch. `lends`:
        no memory is kept."""
        launch = self.forward.lent if lends else self.forward
        outputs = launch.run(_picked(tensors, launch.inputs), [params[name] for name in launch.params])
        return dict(zip(launch.outputs, outputs))


LSE_GRADIENT = "dlse"  # the input of a backward through lse


def run_launch_backward(
    launch: Launch, tensors: Mapping[str, torch.Tensor], params: Mapping[str, float]
) -> dict[str, torch.Tensor]:
    """Executes a backward. `tensors`: those of the forward, its outputs, `do` and perhaps `dlse`. Gradients by the
    tensors' names."""
    outputs = launch.run(_picked(tensors, launch.inputs), [params[name] for name in launch.params])
    return {differentiated(name): tensor for name, tensor in zip(launch.outputs, outputs)}


def differentiated(gradient: str) -> str:
    """The tensor that an output of a backward is the gradient of: q of dq, table of d_table. Of an amax its
    own name."""
    if gradient.startswith("amax_"):
        return gradient
    return gradient[2:] if gradient.startswith("d_") else gradient[1:]


def _picked(tensors: Mapping[str, torch.Tensor], names: Sequence[str]) -> list[torch.Tensor]:
    missing = [name for name in names if name not in tensors]
    if missing:
        raise BindingError(f"{' and '.join(missing)} must be given: {missing[0]}=...")
    return [tensors[name] for name in names]


def places_in(file: _libattn.PlanFile, form: Form | None, sm: int) -> dict[str, int]:
    """Where a plan file has the forward, and perhaps the backward, of a form for this GPU. Without a form: of the
    sizes of its first plan for this GPU, since q, k and v say less."""
    if form is None:
        return file.choose(sm, next((plan.sizes for plan in file.plans if plan.sm == sm), {}))
    tensors = {name: (0, form.dtype, input_shape(form, name), input_strides(form, name)) for name in INPUTS}
    return file.choose(sm, form.sizes._asdict(), tensors)
