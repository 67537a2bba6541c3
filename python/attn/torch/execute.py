"""One call, computed: by kernels on a GPU, by the reference on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from attn.arguments import INPUTS
from attn.forms import LSE_GRADIENT, input_strides, output_strides
from attn.outputs import is_o, is_o_of_branch
from attn.torch import empty, reference
from attn.torch.calls import Call
from attn.torch.facts import facts_of
from attn.torch.plans import backward_of, pair_of
from attn.torch.signature import aligned, with_strides
from attn.torch.variant import run_launch_backward


def run_forward(each: Call, training: bool, lends: bool = False) -> tuple[torch.Tensor, ...]:
    """The outputs in the order of the facts' `all_outputs` if training, else of `outputs`. `lends`: no memory is kept
    for the next call."""
    facts = facts_of(each.attention)
    names = facts.all_outputs if training else facts.outputs
    if empty.is_empty(each):
        return empty.run_forward(each, facts, names)
    if each.tensors["q"].device.type == "cpu":
        outputs = reference.run_forward(each, names)
        if each.form is not None:
            for name in filter(is_o, outputs):
                if is_o_of_branch(name):
                    continue
                outputs[name] = with_strides(outputs[name], output_strides(each.form))
    else:
        with torch.cuda.device(each.tensors["q"].device):
            tensors = {
                name: tensor if name in facts.said.bound else aligned(tensor)
                for name, tensor in each.tensors.items()
            }
            outputs = pair_of(each, training).run_forward(tensors, each.params, lends)
    return tuple(outputs[name] for name in names)


def run_backward(
    each: Call, outputs: Sequence[torch.Tensor], d_o: torch.Tensor, d_lse: torch.Tensor | None = None,
    lends: bool = False,
) -> tuple[torch.Tensor, ...]:
    """What the facts' `of_backward` names: the gradients of q, k, v and learned tensors, and amax. `d_lse`: the
    gradient of lse, like lse; None if it is zero. `lends`: as of `run_forward`."""
    facts = facts_of(each.attention)
    if empty.is_empty(each):
        return empty.run_backward(each, facts)
    if each.tensors["q"].device.type == "cpu":
        found = reference.run_backward(each, d_o, d_lse)
        if each.form is not None:
            found |= {name: with_strides(found[name], input_strides(each.form, name)) for name in INPUTS}
    else:
        found = _run_kernels_backward(each, outputs, d_o, d_lse, lends)
    return tuple(found[name] for name in facts.of_backward)


def _run_kernels_backward(
    each: Call, outputs: Sequence[torch.Tensor], d_o: torch.Tensor, d_lse: torch.Tensor | None, lends: bool
) -> dict[str, torch.Tensor]:
    facts = facts_of(each.attention)
    tensors = {**each.tensors, **dict(zip(facts.all_outputs, outputs))}
    with torch.cuda.device(each.tensors["q"].device):
        launch = backward_of(each, through_lse=d_lse is not None)
        launch = launch.lent if lends else launch
        of_o = tensors[facts.saved_o]
        for name, tensor in ((facts.saved_o, of_o), ("do", d_o)):
            strides = launch.strides.get(name, of_o.stride())  # none of packed rows
            tensors[name] = aligned(with_strides(tensor, strides))
        if LSE_GRADIENT in launch.inputs:
            of_lse = torch.zeros_like(tensors["lse"]) if d_lse is None else d_lse
            tensors[LSE_GRADIENT] = aligned(of_lse.contiguous())
        return run_launch_backward(launch, tensors, each.params)
