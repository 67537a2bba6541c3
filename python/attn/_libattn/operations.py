"""Operations beside attention, for paged caches: the structures of attn/operations.h, and their calls."""
from __future__ import annotations

import ctypes

from attn._libattn.declarations import _I32, _I64, _POINTER, _SIZE, _Struct
from attn._libattn.executables import Runtime
from attn._libattn.handles import _call


class Rows(ctypes.Structure):
    """attn_rows."""

    _fields_ = [("data", _POINTER), ("dtype", _I32), ("reserved", _I32), ("heads", _I64), ("width", _I64),
                ("row_stride", _I64), ("head_stride", _I64)]


class Pool(ctypes.Structure):
    """attn_pool."""

    _fields_ = [("data", _POINTER), ("dtype", _I32), ("reserved", _I32), ("page_stride", _I64), ("row_stride", _I64),
                ("head_stride", _I64), ("descale", _POINTER)]


class Rotary(ctypes.Structure):
    """attn_rotary."""

    _fields_ = [("cos", _POINTER), ("sin", _POINTER), ("dtype", _I32), ("positions_dtype", _I32), ("cos_stride", _I64),
                ("sin_stride", _I64), ("table_rows", _I64), ("positions", _POINTER), ("rotary_dim", _I64),
                ("interleaved", _I32), ("reserved", _I32)]


class AppendArguments(_Struct):
    """attn_append_arguments. What is not given is absent."""

    _fields_ = [("size", _SIZE), ("rows", _I64), ("k", Rows), ("v", Rows), ("k_pool", Pool), ("v_pool", Pool),
                ("pages", _I64), ("page_size", _I64), ("slot_mapping", _POINTER), ("rotary", Rotary), ("q", Rows),
                ("q_out", Rows), ("outside", _POINTER)]


class Partial(ctypes.Structure):
    """attn_partial."""

    _fields_ = [("o", Rows), ("lse", _POINTER), ("lse_row_stride", _I64), ("lse_head_stride", _I64), ("count", _I64),
                ("o_stride", _I64), ("lse_stride", _I64)]


class MergeArguments(_Struct):
    """attn_merge_arguments. What is not given is absent."""

    _fields_ = [("size", _SIZE), ("rows", _I64), ("a", Partial), ("b", Partial), ("out", Rows), ("lse", _POINTER),
                ("lse_row_stride", _I64), ("lse_head_stride", _I64)]


def append(runtime: Runtime, arguments: AppendArguments, stream: int) -> None:
    """attn_append on a CUDA stream. Raises BindingError, UnsupportedError, CudaError."""
    _call("attn_append", runtime._handle, ctypes.byref(arguments), stream)


def merge(runtime: Runtime, arguments: MergeArguments, stream: int) -> None:
    """attn_merge on a CUDA stream. Raises BindingError, UnsupportedError, CudaError."""
    _call("attn_merge", runtime._handle, ctypes.byref(arguments), stream)
