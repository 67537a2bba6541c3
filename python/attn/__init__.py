"""attnc for Python: attention that is written as a specification, compiled into plans of fused kernels.

    import attn
    f = attn.compile("gemma2_local", B=1, Sq=256, window=64)
    o, lse = f(q, k, v)

Without a GPU, the reference computes. `import attn` needs neither NumPy, PyTorch, CUDA nor cuDNN.
See docs/python.md."""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import attention as _attention
from . import specs
from .attention import Attention, compile, load
from .doctor import doctor
from .errors import (ArgumentError, BindingError, CompilerError, CudaError, CudnnError, Diagnostic,
                     Error, NcclError, PlanDeviceError, PlanError, PlanVersionError, SpecError,
                     SpecWarning, TraceError, UnsupportedError)
from .plan import targets
from .specs import Spec
from .trace import trace

__version__ = "0.1.0"

__all__ = [
    "ArgumentError", "Attention", "BindingError", "CompilerError", "CudaError", "CudnnError",
    "Diagnostic", "Error", "NcclError", "PlanDeviceError", "PlanError", "PlanVersionError", "Spec",
    "SpecError", "SpecWarning", "TraceError", "UnsupportedError", "__version__", "compile", "doctor",
    "jax", "load", "specs", "targets", "torch", "trace",
]


def _import_torch() -> Any:
    return importlib.import_module(f"{__name__}.torch")  # imports PyTorch


def _import_jax() -> Any:
    return importlib.import_module(f"{__name__}.jax")  # imports JAX


_attention.import_torch = _import_torch
_attention.import_jax = _import_jax


if TYPE_CHECKING:
    from . import jax as jax
    from . import torch as torch
else:
    def __getattr__(name: str) -> Any:
        if name == "torch":
            return _import_torch()
        if name == "jax":
            return _import_jax()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
