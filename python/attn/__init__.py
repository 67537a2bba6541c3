"""attnc for Python: attention that is written as a specification, compiled into plans of fused kernels.

    import attn
    f = attn.compile("gemma2_local", B=1, Sq=256, window=64)
    o, lse = f(q, k, v)

Without a GPU, the reference computes. `import attn` needs neither NumPy, PyTorch, CUDA nor cuDNN.
See docs/python.md."""
from __future__ import annotations

import importlib
from typing import Any

from . import specs
from .errors import (ArgumentError, BindingError, CompilerError, CudaError, CudnnError, Diagnostic,
                     Error, PlanDeviceError, PlanError, PlanVersionError, SpecError, SpecWarning,
                     TraceError, Unsupported)
from .specs import Spec

__version__ = "0.1.0"

__all__ = ["ArgumentError", "BindingError", "CompilerError", "CudaError", "CudnnError", "Diagnostic",
           "Error", "PlanDeviceError", "PlanError", "PlanVersionError", "Spec", "SpecError",
           "SpecWarning", "TraceError", "Unsupported", "__version__", "specs"]

_LAZY = ("torch",)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
