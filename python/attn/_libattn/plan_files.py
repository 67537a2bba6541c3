"""The plans in the contents of a plan file, and what they bind."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from attn._libattn.declarations import (_DIMS, _DIRECTIONS, _DTYPE_NAMES, _DTYPES, _I64, _SIZE, _direction_name,
                                        _dtype_number, _int64s, _ParamInfo, _PlanInfo, _Shape, _Tensor, _TensorInfo,
                                        library)
from attn._libattn.handles import _call, _Handle
from attn.errors import ArgumentError

_PADDED = sum(1 << _DIMS.index(dim) for dim in ("B", "Sq", "Skv"))
Tensor = tuple[int, str, Sequence[int], Sequence[int]]  # device address, dtype, dims, strides in elements


@dataclass(frozen=True)
class TensorInfo:
    """A tensor to bind. Dims are in logical order, strides in elements; `role` is a name of attn_role_name
    ("query", "captured", "gradient"), `alignment` is in bytes. `bytes` is what to allocate. `bound_strides`: a
    binding takes other strides, too, and any number of pages."""

    name: str
    role: str
    dtype: str
    is_output: bool
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int
    addressed_by: str
    bytes: int
    bound_strides: bool


@dataclass(frozen=True)
class ParamInfo:
    """A number to bind: `dtype` is "f32" or "i32"."""

    name: str
    dtype: str


@dataclass(frozen=True)
class PlanInfo:
    """One plan of a file. `target` is the GPU it was compiled for, `sm` the compute capability times 10
    that it needs, `cudnn_version` the version (91900 for 9.19.0; 0: none). `padded` are the dimensions for
    which the plan serves smaller sizes too."""

    name: str
    signature: str
    target: str
    spec: str
    sm: int
    direction: str
    cudnn_version: int
    workspace_bytes: int
    device_bytes: int
    tensors: tuple[TensorInfo, ...]
    params: tuple[ParamInfo, ...]
    sizes: dict[str, int]
    padded: frozenset[str]


class PlanFile:
    """The plans in the contents of a plan file, without a GPU. Raises PlanError if it cannot be read."""

    def __init__(self, contents: bytes):
        self._handle = _Handle("attn_plan_close")
        _call("attn_plan_open_memory", contents, len(contents), None, self._handle.out)
        count = library().attn_plan_count(self._handle)
        self.plans: tuple[PlanInfo, ...] = tuple(self._describe(index) for index in range(count))

    def _describe(self, index: int) -> PlanInfo:
        info = _PlanInfo()
        _call("attn_plan_describe", self._handle, index, ctypes.byref(info))
        return PlanInfo(
            info.name.decode(), info.signature.decode(), info.target.decode(), info.spec.decode(),
            info.sm, _direction_name(info.direction), info.cudnn_version, info.workspace_bytes,
            info.device_bytes,
            _tensors(info.tensor_count, "attn_plan_tensor", self._handle, index),
            _params(info.param_count, "attn_plan_param", self._handle, index),
            dict(zip(_DIMS, info.sizes[:len(_DIMS)])),
            frozenset(dim for bit, dim in enumerate(_DIMS) if info.padded >> bit & 1))

    def choose(self, sm: int, sizes: Mapping[str, int], tensors: Mapping[str, Tensor] = {}) -> dict[str, int]:
        """The indices of the plans, by direction, for GPUs of compute capability `sm` / 10, these sizes and such
        tensors, as attn_plan_choose says. Raises ArgumentError if the plans differ in a size that is missing."""
        places = [_I64() for _ in _DIRECTIONS]
        _call("attn_plan_choose", self._handle, sm, ctypes.byref(_shape(sizes)), arguments_of(tensors, {}, {}),
              *map(ctypes.byref, places))
        return {direction: place.value for direction, place in zip(_DIRECTIONS, places) if place.value >= 0}


class Shapes:
    """Sizes that plans are built for, each of which may be padded in B, Sq and Skv."""

    def __init__(self, shapes: Sequence[Mapping[str, int]]):
        self._shapes = shapes
        self._plain = (_Shape * len(shapes))(*map(_shape, shapes))

    def choose(self, sizes: Mapping[str, int]) -> Mapping[str, int] | None:
        """The shape to which these sizes are padded, or None if none is large enough: as attn_shape_choose says."""
        index = _SIZE()
        _call("attn_shape_choose", self._plain, len(self._plain), ctypes.byref(_shape(sizes)), ctypes.byref(index))
        return self._shapes[index.value] if index.value < len(self._shapes) else None


def _shape(sizes: Mapping[str, int]) -> _Shape:
    for name, size in sizes.items():
        if name not in _DIMS or not 0 <= size < 2**63:
            raise ArgumentError(f"{name} = {size} is no size of a plan, which has {', '.join(_DIMS)}")
    return _Shape(tuple(sizes.get(dim, -1) for dim in _DIMS), _PADDED)


def arguments_of(tensors: Mapping[str, Tensor], params: Mapping[str, float],
                 dtypes: Mapping[str, str]) -> _Handle:
    """What to bind. `dtypes` are those of the params."""
    arguments = _Handle("attn_arguments_destroy")
    _call("attn_arguments_create", arguments.out)
    for name, (address, dtype, dims, strides) in tensors.items():
        tensor = _Tensor(name=name.encode(), data=address, dtype=_dtype_number(name, dtype),
                         rank=len(dims), dims=_int64s(dims), strides=_int64s(strides))
        _call("attn_arguments_tensor", arguments, ctypes.byref(tensor))
    for name, value in params.items():
        _call("attn_arguments_param", arguments, name.encode(), _DTYPES[dtypes.get(name, "f32")], value)
    return arguments


def _tensors(count: int, function: str, *where: Any) -> tuple[TensorInfo, ...]:
    def one(index: int) -> TensorInfo:
        info = _TensorInfo()
        _call(function, *where, index, ctypes.byref(info))
        return TensorInfo(
            info.name.decode(), library().attn_role_name(info.role).decode(),
            _DTYPE_NAMES[info.dtype], bool(info.is_output), tuple(info.dims[:info.rank]),
            tuple(info.strides[:info.rank]), info.alignment, info.addressed_by.decode(), info.bytes,
            bool(info.bound_strides))

    return tuple(one(index) for index in range(count))


def _params(count: int, function: str, *where: Any) -> tuple[ParamInfo, ...]:
    def one(index: int) -> ParamInfo:
        info = _ParamInfo()
        _call(function, *where, index, ctypes.byref(info))
        return ParamInfo(info.name.decode(), _DTYPE_NAMES[info.dtype])

    return tuple(one(index) for index in range(count))
