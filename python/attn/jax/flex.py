"""FlexAttention's call for JAX: functions of one score, in jax.numpy or plain operators."""

from __future__ import annotations

import functools
from typing import Any

import jax

from attn import hints, layouts
from attn.arguments import INPUTS, sizes_of
from attn.attention import Attention
from attn.errors import BindingError
from attn.jax.calls import SCALE, number_of
from attn.jax.dtypes import HALF, name_of
from attn.jax.function import call
from attn.specs import Spec
from attn.trace import trace
from attn.tracing import dialects
from attn.types import Mod, Outputs

MOST_KEPT = 256  # attentions: least recently used dropped first


@functools.lru_cache(maxsize=MOST_KEPT)
def attention_of(spec: Spec) -> Attention:
    """The attention of a text: calls of the same text share its plans."""
    return Attention(spec, {})


def flex_attention(query: Any, key: Any, value: Any, score_mod: Mod | None = None, mask_mod: Mod | None = None, *,
                   scale: float | None = None, layout: str = "bhsd", return_lse: bool = False, dropout: float = 0.0,
                   dropout_key: Any = None, **others: object) -> Outputs:
    """Attention with `score_mod(score, b, h, q_idx, kv_idx)` and `mask_mod(b, h, q_idx, kv_idx)`, functions of numbers.

    query [B, Hq, Sq, D], key [B, Hkv, Skv, D], value [B, Hkv, Skv, Dv], or with layout="bshd" [B, S, H, D]. The
    functions use operators, functions of jax.numpy, jax.nn and jax.lax (`where` or `select`, `tanh`, ..), and arrays,
    which they index; PyTorch's FlexAttention takes the same ones where they have only operators. Arrays of reals that a
    traced program computes get gradients. Returns o, or (o, lse) with the natural logarithm's lse, float32
    [B, Hq, Sq]. `dropout` is a probability, and draws by `dropout_key`, of jax.random. `others` are arguments of other
    attentions, which are refused.

    The functions are traced in each call of this one: call it within jax.jit. Raises TraceError, with the line of the
    function, for what cannot be expressed, and what `attn.jax.call` raises.
    """
    if others:
        hints.refuse("flex_attention", others)
    for name, x in zip(("query", "key", "value"), (query, key, value)):
        if not isinstance(x, jax.Array):
            raise BindingError(f"{name} is a {type(x).__name__}, not an array of JAX")
    sizes = sizes_of(query, key, value, layout=layouts.checked(layout) or "bhsd")
    dtype = name_of(query)
    scale = None if scale is None else number_of("scale", scale, SCALE)
    dropout = number_of("dropout", dropout, "its key may be computed: dropout=0.1, dropout_key=key")
    with dialects.of_jax():
        traced = trace(score_mod, mask_mod, facts=False, scale=scale, outputs=("o", "lse") if return_lse else ("o",),
                       dropout=dropout, dtype=dtype if dtype in HALF else "bf16", layout=layout, **sizes._asdict())
    attention = attention_of(Spec(traced.text, traced=True, origins=traced.origins))
    return call(attention, **dict(zip(INPUTS, (query, key, value))), layout=layout, key=dropout_key, **traced.tensors)
