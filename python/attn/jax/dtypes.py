"""The types of JAX's arrays, by the names that specs give them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

NAMES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "int8": "i8",
    "uint8": "u8",
    "int32": "i32",
    "int64": "i64",
    "bool": "bool",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float8_e8m0fnu": "e8m0",
}
DTYPES = {spec: jnp.dtype(name) for name, spec in NAMES.items()}
HALF = ("bf16", "f16")
EIGHT_BITS = ("e4m3", "e5m2")
IN_KERNELS = (*HALF, *EIGHT_BITS)  # of q, k and v
REALS = (*IN_KERNELS, "f32", "f64")


def name_of(x: Any) -> str:
    """The spec's name of an array's type ("bf16"); of others that of NumPy ("complex64")."""
    name = str(jnp.dtype(x.dtype).name)
    return NAMES.get(name, name)
