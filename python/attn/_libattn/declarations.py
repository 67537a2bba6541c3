"""The structures and functions of attn.h, and the library that has them."""
from __future__ import annotations

import ctypes
import functools
import pathlib
from typing import Any, Mapping, Sequence

from attn import _find
from attn.errors import ArgumentError, CompilerError

API_VERSION = 1
_FORWARD, _BACKWARD = "fwd", "bwd"
_DIRECTIONS = {_FORWARD: 0, _BACKWARD: 1}
_DTYPES = {"f16": 1, "bf16": 2, "f32": 3, "f64": 4, "i8": 5, "u8": 6, "i32": 7, "i64": 8, "bool": 9,
           "e4m3": 10, "e5m2": 11, "e8m0": 12}
_DTYPE_NAMES = {number: name for name, number in _DTYPES.items()}
_DIMS = ("B", "Hq", "Hkv", "Sq", "Skv", "Dqk", "Dv")
_CUDA_FAILURES = {1: "other", 2: "out_of_memory", 3: "fault", 4: "no_driver"}
_WORKSPACE_OWNED, _WORKSPACE_CALLER = 0, 1

_I32, _U32, _I64, _U64 = ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64
_SIZE, _TEXT, _POINTER, _REAL = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_double
_I64S = ctypes.POINTER(ctypes.c_int64)


class _Struct(ctypes.Structure):
    """A structure of attn.h that begins with its size."""

    def __init__(self, **fields: Any):
        super().__init__(size=ctypes.sizeof(self), **fields)


class _RuntimeOptions(_Struct):
    _fields_ = [("size", _SIZE), ("cudnn_folder", _TEXT), ("device", _I32), ("most_handles", _I32),
                ("cache_entries", _U64), ("cache_bytes", _U64), ("skip_value_checks", _I32),
                ("reserved", _I32), ("log", _POINTER), ("log_user", _POINTER),
                ("log_release", _POINTER), ("allocate_memory", _POINTER), ("free_memory", _POINTER),
                ("allocator_user", _POINTER), ("allocator_release", _POINTER)]


class _RuntimeInfo(_Struct):
    _fields_ = [("size", _SIZE), ("device_name", _TEXT), ("device", _I32), ("sm", _I32),
                ("cudnn_version", _I64), ("cudnn_library", _TEXT)]


class _ExecutableInfo(_Struct):
    _fields_ = [("size", _SIZE), ("name", _TEXT), ("signature", _TEXT), ("target", _TEXT),
                ("workspace_bytes", _I64), ("direction", _I32), ("reserved", _I32),
                ("tensor_count", _SIZE), ("param_count", _SIZE), ("device_bytes", _I64)]


class _PlanInfo(_Struct):
    _fields_ = [("size", _SIZE), ("name", _TEXT), ("signature", _TEXT), ("target", _TEXT),
                ("spec", _TEXT), ("sm", _I32), ("direction", _I32), ("cudnn_version", _I64),
                ("workspace_bytes", _I64), ("device_bytes", _I64), ("tensor_count", _SIZE),
                ("param_count", _SIZE), ("sizes", _I64S), ("padded", _U32), ("reserved", _I32)]


class _TensorInfo(_Struct):
    _fields_ = [("size", _SIZE), ("name", _TEXT), ("role", _I32), ("dtype", _I32),
                ("is_output", _I32), ("rank", _I32), ("dims", _I64S), ("strides", _I64S),
                ("alignment", _I64), ("addressed_by", _TEXT), ("bytes", _I64),
                ("bound_strides", _I32), ("reserved", _I32)]


class _ParamInfo(_Struct):
    _fields_ = [("size", _SIZE), ("name", _TEXT), ("dtype", _I32), ("reserved", _I32)]


class _Tensor(_Struct):
    _fields_ = [("size", _SIZE), ("name", _TEXT), ("data", _POINTER), ("dtype", _I32),
                ("rank", _I32), ("dims", _I64S), ("strides", _I64S)]


class _Shape(ctypes.Structure):
    _fields_ = [("sizes", _I64 * len(_DIMS)), ("padded", _U32), ("reserved", _I32)]


class _BindOptions(_Struct):
    _fields_ = [("size", _SIZE), ("workspace", _I32), ("reserved", _I32),
                ("workspace_memory", _POINTER), ("kept_addresses", _U64), ("stream", _POINTER),
                ("schedule", _POINTER)]


class _ScheduleOptions(_Struct):
    _fields_ = [("size", _SIZE), ("max_parts", _I64), ("split_keys", _I64), ("sm_margin", _I64),
                ("capacity_rows", _I64), ("capacity_keys", _I64)]


# Functions that can fail: they return a status and take an error last.
_FALLIBLE: dict[str, list[Any]] = {
    "attn_runtime_open": [_POINTER, _POINTER],
    "attn_runtime_describe": [_POINTER, _POINTER],
    "attn_executable_describe": [_POINTER, _POINTER],
    "attn_executable_tensor": [_POINTER, _SIZE, _POINTER],
    "attn_executable_param": [_POINTER, _SIZE, _POINTER],
    "attn_executable_load_plan": [_POINTER, _POINTER, _SIZE, _POINTER],
    "attn_plan_open_memory": [_TEXT, _SIZE, _POINTER, _POINTER],
    "attn_plan_describe": [_POINTER, _SIZE, _POINTER],
    "attn_plan_tensor": [_POINTER, _SIZE, _SIZE, _POINTER],
    "attn_plan_param": [_POINTER, _SIZE, _SIZE, _POINTER],
    "attn_plan_choose": [_POINTER, _I32, _POINTER, _POINTER, _POINTER, _POINTER],
    "attn_shape_choose": [_POINTER, _SIZE, _POINTER, _POINTER],
    "attn_arguments_create": [_POINTER],
    "attn_arguments_tensor": [_POINTER, _POINTER],
    "attn_arguments_param": [_POINTER, _TEXT, _I32, _REAL],
    "attn_binding_create": [_POINTER, _POINTER, _POINTER, _POINTER],
    "attn_binding_set_param": [_POINTER, _TEXT, _REAL],
    "attn_binding_set_addresses": [_POINTER, _POINTER, _SIZE, _I32],
    "attn_binding_set_workspace": [_POINTER, _POINTER],
    "attn_binding_execute": [_POINTER, _POINTER],
    "attn_binding_use_schedule": [_POINTER, _POINTER],
    "attn_binding_check": [_POINTER, _POINTER],
    "attn_schedule_create": [_POINTER, _POINTER, _POINTER],
    "attn_schedule_build_shared": [_POINTER, _POINTER, _POINTER, _I64, _I64, _POINTER],
    "attn_schedule_flags": [_POINTER, _POINTER, _POINTER],
    "attn_append": [_POINTER, _POINTER, _POINTER],
    "attn_merge": [_POINTER, _POINTER, _POINTER],
}
_OTHERS: dict[str, tuple[Any, list[Any]]] = {
    "attn_api_version": (_I32, []),
    "attn_version": (_TEXT, []),
    "attn_status_name": (_TEXT, [_I32]),
    "attn_role_name": (_TEXT, [_I32]),
    "attn_error_create": (_POINTER, []),
    "attn_error_destroy": (None, [_POINTER]),
    "attn_error_message": (_TEXT, [_POINTER]),
    "attn_error_note_count": (_SIZE, [_POINTER]),
    "attn_error_note": (_TEXT, [_POINTER, _SIZE]),
    "attn_error_cuda_failure": (_I32, [_POINTER]),
    "attn_error_cuda_code": (_I32, [_POINTER]),
    "attn_plan_count": (_SIZE, [_POINTER]),
    "attn_plan_close": (None, [_POINTER]),
    "attn_runtime_release": (None, [_POINTER]),
    "attn_executable_release": (None, [_POINTER]),
    "attn_arguments_destroy": (None, [_POINTER]),
    "attn_binding_destroy": (None, [_POINTER]),
    "attn_schedule_destroy": (None, [_POINTER]),
}


def path() -> pathlib.Path:
    """The libattn that is used: $ATTN_LIBRARY, else the one in this package, else the one that is built in
    this checkout. Raises CompilerError if there is none."""
    return _find.find_file("libattn.so.1", "ATTN_LIBRARY",
                           [_find.PACKAGE / "lib" / "libattn.so.1",
                            _find.CHECKOUT / "build" / "libattn.so.1"])


def declare(loaded: ctypes.CDLL, fallible: Mapping[str, Sequence[Any]], others: Mapping[str, Any]) -> None:
    """The types of functions: `fallible` ones, which return a status and take an error last, by their arguments;
    `others` by result and arguments. Raises AttributeError for one that there is not."""
    for name, types in fallible.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = _I32, [*types, _POINTER]
    for name, (result, types) in others.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, types


@functools.lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """libattn, loaded once. Raises CompilerError if it is missing or of another interface."""
    file = path()
    try:
        loaded = ctypes.CDLL(str(file))
    except OSError as error:
        raise CompilerError(f"{file} cannot be loaded: {error}") from error
    try:
        declare(loaded, _FALLIBLE, _OTHERS)
        found = loaded.attn_api_version()
    except AttributeError as error:
        raise CompilerError(f"{file} is not a libattn that this package knows: {error}") from error
    if found != API_VERSION:
        raise CompilerError(f"{file} has interface {found}, this package needs {API_VERSION}")
    return loaded


def version() -> str:
    """The version of libattn, three numbers: "1.2.3"."""
    return str(library().attn_version().decode())


def _direction_name(number: int) -> str:
    return _BACKWARD if number == _DIRECTIONS[_BACKWARD] else _FORWARD


def _dtype_number(name: str, dtype: str) -> int:
    if dtype not in _DTYPES:
        raise ArgumentError(f"{name} has dtype {dtype!r}, which no plan has",
                            [f"dtypes are {', '.join(_DTYPES)}"])
    return _DTYPES[dtype]


def _int64s(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)
