"""Variants of one attention: a pair of plans for each combination of sizes, dtype, strides and device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from attn import _libattn
from attn.arguments import Sizes
from attn.errors import BindingError
from attn.forms import Layout, dense_strides, differentiated, layout_of, output_shape
from attn.torch.launch import Launch
from attn.torch.signature import order_of


def output_layout(q: torch.Tensor, sizes: Sizes) -> Layout:
    """The layout of o: without gaps, in the order of q's dims, as FlexAttention's."""
    return layout_of(output_shape(sizes), dense_strides(output_shape(sizes), order_of(q)))


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


def run_launch_backward(
    launch: Launch, tensors: Mapping[str, torch.Tensor], params: Mapping[str, float]
) -> dict[str, torch.Tensor]:
    """Executes a backward. `tensors`: those of the forward, its outputs, `do` and perhaps `dlse`. Gradients by the
    tensors' names."""
    outputs = launch.run(_picked(tensors, launch.inputs), [params[name] for name in launch.params])
    return {differentiated(name): tensor for name, tensor in zip(launch.outputs, outputs)}


def _picked(tensors: Mapping[str, torch.Tensor], names: Sequence[str]) -> list[torch.Tensor]:
    missing = [name for name in names if name not in tensors]
    if missing:
        raise BindingError(f"{' and '.join(missing)} must be given: {missing[0]}=...")
    return [tensors[name] for name in names]
