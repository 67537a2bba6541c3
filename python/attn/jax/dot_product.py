"""jax.nn.dot_product_attention's call, computed by attnc."""

from __future__ import annotations

import operator
from typing import Any, Sequence

import jax
import jax.numpy as jnp

from attn import hints
from attn.errors import ArgumentError, BindingError
from attn.jax.calls import SCALE, number_of
from attn.jax.dtypes import REALS, name_of
from attn.jax.flex import attention_of
from attn.jax.function import call
from attn.specs import Spec
from attn.tracing.captures import is_computed
from attn.types import Outputs

_DIMS = ("B", "Hq", "Sq", "Skv")
_INDEXES = ("b", "h", "q_idx", "kv_idx")


def dot_product_attention(
    query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, *, scale: float | None = None,
    is_causal: bool = False, query_seq_lengths: Any = None, key_value_seq_lengths: Any = None,
    local_window_size: int | Sequence[int] | None = None, return_residual: bool = False, **others: object,
) -> Outputs:
    """`jax.nn.dot_product_attention`: query [B, T, N, H], key and value [B, S, K, H], or without B.

    `bias` and `mask` are 4D (or 3D without B), each dimension of which is whole or 1, and the bias has a gradient.
    Rows past `query_seq_lengths` are 0 here. Returns the output, or with `return_residual` (output, lse), lse float32
    [B, T, N]. `implementation` is refused, as the plan decides. Raises BindingError for what does not fit, and what
    `attn.jax.call` raises.
    """
    if others:
        if "implementation" in others:
            raise ArgumentError("dot_product_attention has no `implementation`: attnc computes it",
                                ['attn.compile(.., engine="cudnn") computes a spec by cuDNN'])
        hints.refuse("dot_product_attention", others)
    alone = getattr(query, "ndim", 4) == 3
    if alone:
        query, key, value, bias, mask = (None if x is None else x[None] for x in (query, key, value, bias, mask))
    tensors: dict[str, Any] = {}
    clauses = [_term("bias", bias, query, key, tensors), _term("mask", mask, query, key, tensors),
               "mask q_idx >= kv_idx;" if is_causal else "", _window(local_window_size),
               _lengths(query_seq_lengths, key_value_seq_lengths, tensors),
               "" if scale is None else f"scale {number_of('scale', scale, SCALE)!r};"]
    text = ("attention dot_product { dims B, Hq, Hkv, Sq, Skv, D; " + " ".join(filter(None, clauses))
            + " outputs o, lse; }")
    o, lse = call(attention_of(Spec(text)), query, key, value, layout="bshd", **tensors)
    lse = jnp.swapaxes(lse, 1, 2)
    if alone:
        o, lse = o[0], lse[0]
    return (o, lse) if return_residual else o


def _term(name: str, x: Any, query: Any, key: Any, tensors: dict[str, Any]) -> str:
    """The clauses of the bias or of the mask, which `tensors` gets."""
    if x is None:
        return ""
    x = jnp.asarray(x)
    sizes = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
    if x.ndim != 4 or any(own not in (1, whole) for own, whole in zip(x.shape, sizes)):
        raise BindingError(f"{name} has shape {list(x.shape)}, which cannot be broadcast to {list(sizes)}: [B, N, T, S]")
    if name == "mask" and name_of(x) != "bool":
        raise BindingError(f"mask is of {x.dtype}; it must be of booleans", ["an additive mask is a bias"])
    if name == "bias" and name_of(x) not in REALS:
        raise BindingError(f"bias is of {x.dtype}; it must be of floats")
    tensors[name] = x
    whole = [own == size and size > 1 for own, size in zip(x.shape, sizes)]
    dims = ", ".join(dim if one else "1" for dim, one in zip(_DIMS, whole))
    element = f"{name}[{', '.join(index if one else '0' for index, one in zip(_INDEXES, whole))}]"
    if name == "mask":
        return f"tensor mask: bool[{dims}]; mask {element};"
    dtype = name_of(x) if name_of(x) != "f64" else "f32"
    return f"{'learn' if is_computed(x) else 'tensor'} bias: {dtype}[{dims}]; score score + {element};"


def _window(size: int | Sequence[int] | None) -> str:
    if size is None:
        return ""
    left, right = _sides(size)
    if left < 0 or right < 0:
        raise ArgumentError(f"local_window_size is {(left, right)}; it must not be negative")
    return f"mask q_idx - kv_idx <= {left} && kv_idx - q_idx <= {right};"


def _sides(size: Any) -> tuple[int, int]:
    """The numbers of keys that a window has to the left and to the right. Raises BindingError if it says none."""
    try:
        sides = tuple(size) if isinstance(size, Sequence) or getattr(size, "ndim", 0) > 0 else (size, size)
        left, right = map(operator.index, sides)
    except (TypeError, ValueError):
        raise BindingError(f"local_window_size is {size!r}; it must be an integer of Python, or two",
                           ["local_window_size=(left, right) counts keys before and after: (1023, 0)",
                            "one that a program computes is a mask: `mask=`"]) from None
    return left, right


def _lengths(of_query: Any, of_keys: Any, tensors: dict[str, Any]) -> str:
    given = {"q": of_query, "kv": of_keys}
    for name, x in given.items():
        if x is not None:
            tensors[f"lengths_{name}"] = x if isinstance(x, jax.Array) else jnp.asarray(x, jnp.int32)
    wanted = [name for name, x in given.items() if x is not None]
    return f"lengths {', '.join(wanted)};" if wanted else ""
