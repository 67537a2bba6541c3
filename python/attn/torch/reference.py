"""Calls on the CPU, which the reference computes in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from attn.arguments import INPUTS, sizes_of
from attn.outputs import is_amax
from attn.reference import reference
from attn.torch.addressed import NOT_ADDRESSED, Dense
from attn.torch.calls import Call
from attn.torch.facts import facts_of
from attn.torch.signature import DTYPES, EIGHT_BITS, HALF, IN_KERNELS


def _dense(each: Call) -> tuple[Dense, dict[str, Any]]:
    """The tensors in logical order, and the sizes and parameters."""
    facts, bindings = facts_of(each.attention), each.attention.bindings
    tensors = {name: _widened(tensor) for name, tensor in each.tensors.items()}
    found = Dense(facts.addressing or NOT_ADDRESSED, tensors, facts.said.sizes)
    sizes = sizes_of(*(found.tensors[name] for name in INPUTS))
    return found, {**{name: value for name, value in bindings.items() if name != "D"}, **sizes._asdict()}


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, as f32 if it has 8 bits, which PyTorch can only copy and convert."""
    return tensor.detach().float() if tensor.dtype in EIGHT_BITS else tensor


def _numpy(tensor: torch.Tensor) -> Any:
    """A copy of the elements: FSDP resizes the storages of parameters, and PyTorch none that NumPy has seen."""
    tensor = tensor.detach()
    if tensor.dtype in IN_KERNELS:
        return tensor.float().contiguous().numpy()
    return tensor.clone(memory_format=torch.contiguous_format).numpy()


def run_forward(each: Call, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """The outputs of these names."""
    found, bindings = _dense(each)
    facts, dtype = facts_of(each.attention), each.tensors["q"].dtype
    values = reference(
        each.attention.source,
        bindings,
        {**{name: _numpy(tensor) for name, tensor in found.tensors.items()}, **each.params},
        outputs=names,
        unrounded=dtype not in IN_KERNELS,
        dtype=DTYPES[dtype] if dtype in HALF else None,
    )
    made = {name: torch.from_numpy(value) for name, value in values.items()}
    return {
        name: (value if is_amax(name) else found.output(name, value)).to(facts.dtype_of(name, dtype))
        for name, value in made.items()
    }


def run_backward(
    each: Call, d_o: torch.Tensor, d_lse: torch.Tensor | None = None
) -> dict[str, torch.Tensor]:
    """What the facts' `of_backward` names. `d_lse`: the gradient of lse, like lse; None if it is zero."""
    facts, dtype = facts_of(each.attention), each.tensors["q"].dtype
    wanted = facts.differentiated
    found, bindings = _dense(each)
    values = reference(
        each.attention.source,
        bindings,
        {**{name: _numpy(tensor) for name, tensor in found.tensors.items()}, **each.params},
        outputs=(),
        gradients={
            "do": _numpy(found.gradient_of_output(_widened(d_o))),
            "dlse": None if d_lse is None else _numpy(found.gradient_of_output(d_lse)),
            "of": wanted,
            "amax": facts.amax_of_backward,
        },
        unrounded=dtype not in IN_KERNELS,
        dtype=DTYPES[dtype] if dtype in HALF else None,
    )
    made = {name: torch.from_numpy(values[name]) for name in facts.of_backward}
    for name in wanted:
        made[name] = found.gradient(name, made[name]).to(facts.gradient_dtype(name, each.tensors[name]))
    return made
