"""A compiled spec as a function of JAX's arrays."""

from __future__ import annotations

from typing import Any

from attn.attention import Attention
from attn.jax.calls import sorted_call
from attn.jax.facts import facts_of
from attn.jax.gradients import function_of
from attn.jax.varying import alike
from attn.layouts import swapped
from attn.outputs import is_o_of_branch
from attn.types import Outputs


def call(attention: Attention, *args: Any, layout: str | None = None, key: Any = None, **kwargs: Any) -> Outputs:
    """Calls an attention with JAX's arrays, also those of a program that is traced.

    `args` are q [B, Hq, Sq, Dqk], k [B, Hkv, Skv, Dqk] and v [B, Hkv, Skv, Dv], with `layout="bshd"` q [B, Sq, Hq,
    Dqk], k and v [B, Skv, Hkv, ..], and o, also that of a branch, [B, Sq, Hq, Dv]; `kwargs` are the spec's captured
    tensors, lengths and params by name; `key`, of jax.random, is what random dropout draws by. Returns the output, or a
    tuple of the outputs in the order of the spec's clause `outputs`.

    On GPUs a plan computes, which is compiled when a program is lowered, and is in it; on the CPU the reference, in
    double precision. It goes through jit, grad and vjp (once: second derivatives are refused), vmap, remat, scan,
    shard_map, and programs of several devices, where batches and heads stay divided; and jax.export, with
    `attn.jax.disabled_checks()`. o and lse have gradients of q, k, v and learned tensors.

    Raises BindingError for arguments that do not fit, and UnsupportedError, SpecError or CompilerError if a plan is
    needed that cannot be built. What fails in a running program is an error of JAX: see `attn.jax.error_of`.
    """
    if key is not None and "key" in facts_of(attention).said.inputs:
        kwargs["key"], key = key, None  # the spec has a tensor of this name
    setup, tensors = sorted_call(attention, args, kwargs, layout or attention.layout, key)
    outputs = [swapped(x) if setup.layout == "bshd" and is_o_of_branch(name) else x
               for name, x in zip(setup.facts.outputs, function_of(setup)(*alike(tensors)))]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
