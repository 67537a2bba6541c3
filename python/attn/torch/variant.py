"""Variants of one attention: a plan pair for each combination of sizes, dtype, strides and device."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from attn import _libattn
from attn.arguments import Sizes
from attn.errors import BindingError
from attn.torch.launch import Launch
from attn.torch.signature import NAMED_LAYOUTS, dense_strides, same_strides


class Form(NamedTuple):
    """What distinguishes the plans of one spec. Layouts are those of q, k and v, as the
    layout clause says them."""

    sizes: Sizes
    dtype: str
    layouts: tuple[str, str, str]
    deterministic: bool


def output_layout(form: Form) -> str:
    """`o` is laid out like q where q has no gaps."""
    return form.layouts[0] if form.layouts[0] in NAMED_LAYOUTS else "bhsd"


def output_strides(form: Form) -> tuple[int, ...]:
    """The strides of o, [B, Hq, Sq, Dv], in elements."""
    sizes = form.sizes
    shape = (sizes.B, sizes.Hq, sizes.Sq, sizes.Dv)
    return dense_strides(shape, NAMED_LAYOUTS[output_layout(form)])


def input_strides(form: Form, name: str) -> tuple[int, ...]:
    """The strides of q, k or v, and of its gradient."""
    layout = form.layouts["qkv".index(name)]
    if layout in NAMED_LAYOUTS:
        return dense_strides(input_shape(form, name), NAMED_LAYOUTS[layout])
    return tuple(json.loads(layout.removeprefix("strides").replace("(", "[").replace(")", "]")))


def input_shape(form: Form, name: str) -> tuple[int, ...]:
    """The shape of "q", "k" or "v": [B, heads, numbers, elements]."""
    sizes = form.sizes
    if name == "q":
        return (sizes.B, sizes.Hq, sizes.Sq, sizes.Dqk)
    return (sizes.B, sizes.Hkv, sizes.Skv, sizes.Dqk if name == "k" else sizes.Dv)


def edits_of(form: Form) -> list[str]:
    """The options of attnc that give a spec the dtype, the layouts and the determinism of the form."""
    layouts = zip("qkvo", (*form.layouts, output_layout(form)))
    options = ["--dtype", form.dtype, "--layout", ", ".join(f"{name}: {layout}" for name, layout in layouts)]
    return [*options, "--deterministic"] if form.deterministic else options


class Pair:
    """The launches of one variant. `backward` is None unless it was compiled for training."""

    def __init__(self, plan: bytes, places: Mapping[str, int], device: torch.device):
        runtime = _libattn.runtime(device.index or 0)
        self.device = device
        self.forward = Launch(runtime.load(plan, "fwd", places["fwd"]), device)
        self.backward = None
        if "bwd" in places:
            self.backward = Launch(runtime.load(plan, "bwd", places["bwd"]), device)

    def run_forward(
        self, tensors: Mapping[str, torch.Tensor], params: Mapping[str, float]
    ) -> dict[str, torch.Tensor]:
        """Executes the forward on the current stream. Returns its outputs by name, newly allocated by PyTorch."""
        launch = self.forward
        outputs = launch.run(_picked(tensors, launch.inputs), [params[name] for name in launch.params])
        return dict(zip(launch.outputs, outputs))

    def run_backward(
        self, tensors: Mapping[str, torch.Tensor], params: Mapping[str, float]
    ) -> dict[str, torch.Tensor]:
        """`tensors`: those of the forward, its outputs, and `do`. Gradients by the tensors' names."""
        launch = self.backward
        assert launch is not None
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


def places_in(plan: bytes, form: Form, sm: int) -> dict[str, int] | None:
    """Where a plan file has the forward, and perhaps the backward, of a form for this GPU."""
    found: dict[str, int] = {}
    for place, info in enumerate(_libattn.PlanFile(plan).plans):
        if info.sm == sm and _serves(info, form):
            found.setdefault(info.direction, place)
    return found if "fwd" in found else None


def _serves(info: _libattn.PlanInfo, form: Form) -> bool:
    tensors = {tensor.name: tensor for tensor in info.tensors}
    for name in "qkv":
        tensor, shape = tensors.get(name), input_shape(form, name)
        if tensor is None or tensor.addressed_by or tensor.dims != shape or tensor.dtype != form.dtype:
            return False
        if not same_strides(shape, tensor.strides, input_strides(form, name)):
            return False
    return True


class Variants:
    """The pairs of one attention, each built once, by the first thread that needs it."""

    def __init__(self) -> None:
        self._pairs: dict[Any, Pair] = {}
        self._lock = threading.Lock()

    def find(self, key: Any) -> Pair | None:
        """The pair of plans of a key, or None. Thread-safe."""
        return self._pairs.get(key)

    def get(self, key: Any, make: Any) -> Pair:
        """The pair of plans of a key, which `make` makes if there is none. Thread-safe: one thread makes it,
        and others wait."""
        with self._lock:
            if key not in self._pairs:
                self._pairs[key] = make()
            return self._pairs[key]

