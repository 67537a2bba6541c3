"""The plans in the contents of a plan file, and what they bind."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from attn._libattn.declarations import (_DIMS, _DIRECTIONS, _DTYPE_NAMES, _FORWARD, _direction_name, _ParamInfo,
                                        _PlanInfo, _TensorInfo, library)
from attn._libattn.handles import _call, _Handle
from attn.errors import ArgumentError


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

    def find(self, direction: str, index: int | None = None) -> int:
        """The index of the plan of this direction, "fwd" or "bwd". `index` picks among all plans of the
        file. Raises ArgumentError if there is none, or several and no index."""
        if direction not in _DIRECTIONS:
            raise ArgumentError(f"direction is {direction!r}; it must be \"fwd\" or \"bwd\"")
        if index is not None:
            if not 0 <= index < len(self.plans):
                raise ArgumentError(f"plan {index} is not one of the file's {len(self.plans)}")
            return index
        found = [at for at, plan in enumerate(self.plans) if plan.direction == direction]
        if len(found) == 1:
            return found[0]
        word = "forward" if direction == _FORWARD else "backward"
        if not found:
            raise ArgumentError(f"the plan file has no {word} plan", [
                f"compile with direction=\"{direction}\" or direction=\"both\""])
        raise ArgumentError(f"the plan file has {len(found)} {word} plans; give the index of one", [
            f"{at}: {self.plans[at].sizes}" for at in found])


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
