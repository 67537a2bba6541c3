"""What random dropout draws by: `seed` and `offset`, of a key of jax.random."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attn.errors import BindingError
from attn.jax.facts import Facts

# The seeds that PyTorch's side draws are below 2^53, too.
_HIGH_BITS = 21


def pair(name: str, value: Any) -> Any:
    """A 64-bit integer as two of 32 bits, the low half first: programs of JAX have no others by default."""
    if isinstance(value, jax.Array) and value.dtype == jnp.int32 and value.shape == (2,):
        return value
    if isinstance(value, jax.Array) and value.size == 1 and value.dtype in (jnp.int32, jnp.uint32):
        low = value.reshape((1,)).astype(jnp.int32)
        high = jnp.where(low < 0, -1, 0) if value.dtype == jnp.int32 else jnp.zeros_like(low)
        return jnp.concatenate([low, high.astype(jnp.int32)])
    if isinstance(value, jax.Array) and value.size == 1 and value.dtype.name == "int64":
        return jax.lax.bitcast_convert_type(value.reshape((1,)), jnp.int32).reshape((2,))
    if isinstance(value, jax.core.Tracer) or np.asarray(value).size != 1 or np.asarray(value).dtype.kind not in "iu":
        raise BindingError(f"{name} must be one integer", ["or give key=jax.random.key(..) in its stead"])
    return jnp.asarray(np.asarray(value).reshape(1).astype(np.int64).view(np.int32))


def add_random(facts: Facts, tensors: dict[str, Any], key: Any) -> None:
    """Adds the seed and the offset of a call. Raises BindingError if nothing says them, or something says them twice,
    or there is no dropout."""
    if key is not None and not facts.random:
        raise BindingError(f"`{facts.title}` has no random dropout, and a key was given")
    if key is not None and "seed" in tensors:
        raise BindingError("a key and a seed were both given", ["give one of them"])
    if not facts.random:
        return
    if key is not None:
        low, high = jax.random.bits(key, (2,), jnp.uint32)
        words = jnp.stack([low, high >> (32 - _HIGH_BITS)])
        tensors["seed"] = jax.lax.bitcast_convert_type(words, jnp.int32)
    if "seed" not in tensors:
        raise BindingError(f"`{facts.title}` has random dropout, and nothing says what it draws by",
                           ["give key=jax.random.key(..), another one in each call, or seed=.."])
    if "offset" not in tensors:
        tensors["offset"] = jnp.zeros((2,), jnp.int32)
