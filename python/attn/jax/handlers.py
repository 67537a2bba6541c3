"""The functions of libattn_xla.so that programs of XLA call (python/native/xla/attn_xla.h), registered by their names."""

from __future__ import annotations

import atexit
import ctypes
import functools
from typing import Any

import jax

from attn import _libattn
from attn.errors import CompilerError

PLAN = "attn_plan"
REFERENCE = "attn_reference"
WORKSPACE_ALIGNMENT = 256

_OLDEST = (0, 8)


class Array(ctypes.Structure):
    """attn_xla_array."""

    _fields_ = [("data", ctypes.c_void_p), ("dims", ctypes.POINTER(ctypes.c_int64)), ("rank", ctypes.c_int32),
                ("dtype", ctypes.c_int32)]


class Request(ctypes.Structure):
    """attn_xla_request."""

    _fields_ = [("text", ctypes.c_void_p), ("text_size", ctypes.c_size_t),
                ("arguments", ctypes.POINTER(Array)), ("argument_count", ctypes.c_size_t),
                ("results", ctypes.POINTER(Array)), ("result_count", ctypes.c_size_t),
                ("message", ctypes.c_void_p), ("message_size", ctypes.c_size_t)]


Computer = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Request))


@functools.lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """libattn_xla.so, loaded once. Raises CompilerError if it is missing, or JAX is too old for it."""
    if jax.__version_info__ < _OLDEST:
        raise CompilerError(f"attn.jax needs jax 0.8 or later, and this is {jax.__version__}",
                            ["it is tested with 0.8 to 0.11: pip install -U jax"])
    _libattn.library()  # which it is linked to
    path = _libattn.path().parent / "libattn_xla.so"
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompilerError(f"attn.jax needs libattn_xla.so beside libattn.so.1: {error}",
                            ["ninja attn_xla builds it; the wheel has it"]) from error


def register(computer: Any) -> None:
    """Makes the functions known to XLA, those for arrays of the CPU by `computer`, a Computer."""
    loaded = library()
    loaded.attn_xla_set_computer(computer)
    atexit.register(loaded.attn_xla_set_computer, None)  # waits for calls that still run, which need Python
    names = {"instantiate": "attn_xla_instantiate", "initialize": "attn_xla_initialize",
             "execute": "attn_xla_execute"}
    stages = {stage: jax.ffi.pycapsule(getattr(loaded, name)) for stage, name in names.items()}
    jax.ffi.register_ffi_target(PLAN, stages, platform="CUDA", api_version=1)
    compute = jax.ffi.pycapsule(loaded.attn_xla_compute)
    jax.ffi.register_ffi_target(REFERENCE, compute, platform="cpu", api_version=1)
