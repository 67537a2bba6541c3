"""Calls without a row or without a key: nothing is compiled for them, since every element is known."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from attn.arguments import INPUTS
from attn.errors import UnsupportedError
from attn.forms import dense_strides, input_strides, output_strides
from attn.outputs import (
    NO_KEY_BUT_A_SINK, NO_KEY_BUT_AN_EPILOGUE, NO_KEY_NOTES, is_amax, is_o, is_o_of_branch, is_statistic,
    value_of_nothing,
)
from attn.torch.calls import Call
from attn.torch.facts import Facts


def is_empty(each: Call) -> bool:
    """Whether there is no row, or rows that no key can be visible to."""
    return any(0 in each.tensors[name].shape[:-1] for name in INPUTS)


def outputs(each: Call, facts: Facts, names: Sequence[str]) -> list[torch.Tensor]:
    """What a call returns, in memory that was not written yet."""
    q, v = each.tensors["q"], each.tensors["v"]
    shape = (*q.shape[:-1], v.shape[-1])
    dense = dense_strides(shape, range(len(shape)))
    strides = output_strides(each.form) if each.form else dense
    dtype = facts.dtype_of("o", q.dtype)
    made = {
        name: torch.empty_strided(shape, dense if is_o_of_branch(name) else strides, dtype=dtype, device=q.device)
        for name in names if is_o(name)
    }
    made |= {name: q.new_empty(1, dtype=torch.float32) for name in names if is_amax(name)}
    stats = facts.dtype_of("lse", q.dtype)
    return [made[name] if name in made else q.new_empty(shape[:-1], dtype=stats) for name in names]


def gradients(each: Call, facts: Facts) -> list[torch.Tensor]:
    """What a backward returns, the facts' `of_backward`, in memory that was not written yet."""
    made = [_gradient(each, facts, name) for name in facts.differentiated]
    return made + [made[0].new_empty(1, dtype=torch.float32) for _ in facts.amax_of_backward]


def _gradient(each: Call, facts: Facts, name: str) -> torch.Tensor:
    """A gradient with the strides of what it is the gradient of, as a plan makes it."""
    tensor = each.tensors[name]
    dtype = facts.gradient_dtype(name, tensor)
    if each.form is None or name not in INPUTS:
        return torch.empty_like(tensor, dtype=dtype, memory_format=torch.contiguous_format)
    return torch.empty_strided(tensor.shape, input_strides(each.form, name), dtype=dtype, device=tensor.device)


def run_forward(each: Call, facts: Facts, names: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """The outputs where no row sees a key. Raises UnsupportedError where they depend on a sink or an epilogue."""
    if facts.said.facts["epilogue"] and 0 not in each.tensors["q"].shape:
        raise UnsupportedError(NO_KEY_BUT_AN_EPILOGUE, NO_KEY_NOTES)
    if facts.said.facts["sink"] and 0 not in each.tensors["q"].shape and any(map(is_statistic, facts.outputs)):
        raise UnsupportedError(NO_KEY_BUT_A_SINK, NO_KEY_NOTES)
    return tuple(x.fill_(value_of_nothing(name)) for name, x in zip(names, outputs(each, facts, names)))


def run_backward(each: Call, facts: Facts) -> tuple[torch.Tensor, ...]:
    """The gradients of a call without rows or keys: zeros."""
    return tuple(x.zero_() for x in gradients(each, facts))
