"""attnc for JAX: compiled specs as differentiable functions of JAX's arrays.

    f = attn.compile("gemma2_local", Sq=4096, ...)   # an attn.Attention
    o = f(q, k, v)                                   # on GPUs its plan, on the CPU the reference

They go through jit, grad, vmap, remat, scan, shard_map, programs of several devices, and jax.export. Importing it needs
jax 0.8 or later.
"""

import sys

from attn import attention as _attention
from attn.jax.dot_product import dot_product_attention
from attn.jax.errors import error_of
from attn.jax.exported import disabled_checks
from attn.jax.flex import flex_attention
from attn.jax.function import call

__all__ = ["call", "disabled_checks", "dot_product_attention", "error_of", "flex_attention"]

_attention.jax_calls = sys.modules[__name__]
