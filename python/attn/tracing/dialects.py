"""Hints in the words of the library that a mod is written with: they are written as for PyTorch, and said as for JAX
where attn.jax traces."""
from __future__ import annotations

import contextlib
import contextvars
import re
from typing import Iterator

_OF_JAX: contextvars.ContextVar[bool] = contextvars.ContextVar("of_jax", default=False)

# What JAX calls otherwise, before all else of torch, which jax.numpy has by the same name.
_IN_JAX = (("`x.int()` or `x.to(torch.int32)`", "`x.astype(jnp.int32)`"),
           ("torch.clamp", "jnp.clip"), (".bool()", ".astype(bool)"), (".int()", ".astype(jnp.int32)"),
           (".long()", ".astype(jnp.int64)"), (".float()", ".astype(jnp.float32)"))
_OF_TORCH = re.compile(r"(?<![\w.])torch\.(?=\w)")


@contextlib.contextmanager
def of_jax() -> Iterator[None]:
    """Says hints of this thread in JAX's words."""
    before = _OF_JAX.set(True)
    try:
        yield
    finally:
        _OF_JAX.reset(before)


def is_of_jax() -> bool:
    """Whether hints are said in JAX's words."""
    return _OF_JAX.get()


def said(hint: str, in_jax: bool | None = None) -> str:
    """The hint in the words of a library: by default of the one that is traced now."""
    if not (is_of_jax() if in_jax is None else in_jax):
        return hint
    for torchs, jaxs in _IN_JAX:
        hint = hint.replace(torchs, jaxs)
    return _OF_TORCH.sub("jnp.", hint)
