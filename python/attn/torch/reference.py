"""Calls on the CPU, which the reference computes in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from attn.addressed import NOT_ADDRESSED, Dense
from attn.arguments import INPUTS, sizes_of
from attn.outputs import is_amax
from attn.reference import reference
from attn.torch.calls import Call
from attn.torch.facts import facts_of
from attn.torch.signature import DTYPES, HALF, IN_KERNELS


def _dense(each: Call) -> tuple[Dense, dict[str, Any]]:
    """The arrays in logical order, and the sizes and parameters."""
    facts, bindings = facts_of(each.attention), each.attention.bindings
    arrays = {name: _numpy(tensor) for name, tensor in each.tensors.items()}
    found = Dense(facts.addressing or NOT_ADDRESSED, arrays, facts.said.sizes)
    if facts.said.held:
        found.tensors["v"] = found.tensors["k"][..., : arrays["v"].shape[-1]]
    sizes = sizes_of(*(found.tensors[name] for name in INPUTS))
    return found, {**{name: value for name, value in bindings.items() if name != "D"}, **sizes._asdict()}


def _numpy(tensor: torch.Tensor) -> Any:
    """A copy of the elements: FSDP resizes the storages of parameters, and PyTorch none that NumPy has seen."""
    tensor = tensor.detach()
    if tensor.dtype in IN_KERNELS:
        return tensor.float().contiguous().numpy()
    return tensor.clone(memory_format=torch.contiguous_format).numpy()


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))


def run_forward(each: Call, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """The outputs of these names."""
    found, bindings = _dense(each)
    facts, dtype = facts_of(each.attention), each.tensors["q"].dtype
    values = reference(
        each.attention.source,
        bindings,
        {**found.tensors, **each.params},
        outputs=names,
        unrounded=dtype not in IN_KERNELS,
        dtype=DTYPES[dtype] if dtype in HALF else None,
        held=facts.said.held,
    )
    return {
        name: _tensor(value if is_amax(name) else found.output(name, value)).to(facts.dtype_of(name, dtype))
        for name, value in values.items()
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
        {**found.tensors, **each.params},
        outputs=(),
        gradients={
            "do": found.gradient_of_output(_numpy(d_o)),
            "dlse": None if d_lse is None else found.gradient_of_output(_numpy(d_lse)),
            "of": wanted,
            "amax": facts.amax_of_backward,
        },
        unrounded=dtype not in IN_KERNELS,
        dtype=DTYPES[dtype] if dtype in HALF else None,
    )
    made = {name: _tensor(values[name]) for name in facts.amax_of_backward}
    for name in wanted:
        gradient = _tensor(found.gradient(name, values[name]))
        made[name] = gradient.to(facts.gradient_dtype(name, each.tensors[name]))
    return made
