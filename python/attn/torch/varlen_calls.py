"""Bindings of attention over a paged cache, and the step in C that runs them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import torch

from attn import _libattn
from attn._libattn.declarations import _I32, _I64, _I64S, _POINTER, _SIZE, _int64s
from attn.errors import BindingError, UnsupportedError
from attn.torch import direct, private
from attn.torch.varlen_arguments import Tensors
from attn.torch.varlen_spec import Key

DEVICE_TYPE = 2  # DLPack's, of CUDA
UNFIT = -1  # ATTN_CALL_UNFIT
_NOTHING, _ROWS, _SEQUENCES, _SEQUENCES_AND_1 = range(4)  # what dimension 0 counts: ATTN_COUNTS_..
_KEPT_ADDRESSES = 64  # as many layers as switch caches without new tensor maps
ANY_NUMBER = (1 << 63) - 1
_MOST_VIEWS = 32  # strides for which bindings are kept
_APART = 256  # bytes


class _Call(Protocol):
    @property
    def captured(self) -> bool:
        """Whether a CUDA graph uses it."""


_AnyCall = TypeVar("_AnyCall", bound=_Call)


class _Tensor(ctypes.Structure):
    """attn_bound_tensor."""

    _fields_ = [("place", _I32), ("counts", _I32), ("rank", _I32), ("alignment", _I32), ("dims", _I64S),
                ("strides", _I64S), ("fixed", _POINTER), ("least_columns", _I64), ("most_columns", _I64)]


class _Options(ctypes.Structure):
    """attn_bound_options."""

    _fields_ = [("tensors", ctypes.POINTER(_Tensor)), ("tensor_count", _SIZE), ("addresses", _POINTER),
                ("address_count", _SIZE), ("least_sequences", _I64), ("most_sequences", _I64), ("device_type", _I32),
                ("device", _I32)]


def _declared() -> ctypes.PyDLL | None:
    library = direct.LIBRARY
    if library is None:
        return None
    thing = ctypes.py_object
    library.attn_bound_call_create.argtypes = [_POINTER, _POINTER, _POINTER, thing, _POINTER, _POINTER]
    library.attn_bound_call_create.restype = _I32
    library.attn_bound_call_destroy.argtypes = [_POINTER]
    library.attn_bound_call_destroy.restype = None
    library.attn_bound_call_run.argtypes = [_POINTER, thing, _POINTER, _POINTER, _POINTER]
    library.attn_bound_call_run.restype = _I32
    library.attn_bound_call_captured.argtypes = [_POINTER]
    library.attn_bound_call_captured.restype = _I32
    return library


_LIBRARY: Any = _declared()  # None if it is not there: require_library raises

# Enqueues a call: its handle, a tuple of Tensors, the schedule to make before or None, the stream, attn_error.
run: Any = None if _LIBRARY is None else _LIBRARY.attn_bound_call_run


def require_library() -> None:
    """Raises UnsupportedError without the native step, or a PyTorch whose tensors it cannot read."""
    if _LIBRARY is None:
        raise UnsupportedError("varlen_attention needs libattn_call.so beside libattn.so.1, which is missing")
    if direct.EXCHANGE is None:
        raise UnsupportedError("varlen_attention needs DLPack's exchange functions, which PyTorch has since 2.10")


class Placed(dict[str, Any]):
    """Tensors of a binding by the plan's name: address, dtype, dims and strides, as `Executable.bind` takes them. All
    are in `scratch`, memory without contents, until they are given: lengths and tables are as large as the plan has
    them there, and calls give smaller ones, of their sequences."""

    def __init__(self, executable: _libattn.Executable, device: torch.device, step_of_table: int = 0):
        super().__init__()
        infos = executable.tensors
        # Rows and pages, which others locate, take no memory where they are bound.
        most = max(info.bytes for info in infos if not info.addressed_by)
        for info in infos:
            strides = info.strides
            if info.name == "page_table" and step_of_table:
                strides = (step_of_table, 1)
                most = max(most, 4 * (info.dims[0] * step_of_table))
            self[info.name] = (0, info.dtype, info.dims, strides)
        self.scratch = _memory(most + _APART * len(infos), device)
        for place, (name, (_, *rest)) in enumerate(self.items()):
            self[name] = (self.scratch.data_ptr() + place * _APART, *rest)

    def set_pages(self, pages: int) -> None:
        """Says how many pages there are in k and v."""
        for name in ("k", "v"):
            address, dtype, dims, strides = self[name]
            self[name] = (address, dtype, (pages, *dims[1:]), strides)


def _memory(size: int, device: torch.device) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def bind(executable: _libattn.Executable, key: Key, params: Sequence[int], tensors: Tensors, stream: int,
         device: torch.device, schedule: _libattn.Schedule) -> _libattn.Binding:
    """A binding for tensors with the strides of these, which uses the schedule."""
    placed = Placed(executable, device, step_of_table(tensors.block_table))
    infos = {info.name: info for info in executable.tensors}
    for name, tensor in (("q", tensors.q), ("o", tensors.out)):
        placed[name] = (tensor.data_ptr(), infos[name].dtype, infos[name].dims, _strides_of_rows(infos[name], tensor))
    for name, pool in (("k", tensors.k_cache), ("v", tensors.v_cache)):
        placed[name] = (pool.data_ptr(), infos[name].dtype, *_view_of_pool(infos[name], pool))
    if tensors.lse_out is not None and key.lse:
        placed["lse"] = (tensors.lse_out.data_ptr(), *placed["lse"][1:])
    if tensors.s_aux is not None and key.sinks:
        placed["sinks"] = (tensors.s_aux.data_ptr(), *placed["sinks"][1:])
    return bind_placed(executable, placed, params, stream, schedule)


def bind_placed(executable: _libattn.Executable, placed: Placed, params: Sequence[float], stream: int,
                schedule: _libattn.Schedule | None = None) -> _libattn.Binding:
    """A binding for what is placed, and params in the plan's order, which uses the schedule if there is one."""
    named = {info.name: value for info, value in zip(executable.params, params)}
    return executable.bind(placed, named, None, _KEPT_ADDRESSES, stream, schedule)


def device_of(q: Any) -> int:
    """The number of the CUDA device. Raises BindingError."""
    if not isinstance(q, torch.Tensor):
        raise BindingError(f"q is a {type(q).__name__}, not a torch.Tensor")
    if not q.is_cuda:
        raise BindingError(f"q is on {q.device}; it must be on a CUDA device")
    return q.get_device()


def _no_stream(device: int) -> int:
    raise UnsupportedError("varlen_attention needs a PyTorch with CUDA")


# The current stream of a CUDA device.
stream_of = private.current_stream or _no_stream


def step_of_table(table: torch.Tensor) -> int:
    """The stride of a table's rows, in elements."""
    return max(table.stride(0), table.shape[1]) if len(table) > 1 else table.shape[1]


def _strides_of_rows(info: _libattn.TensorInfo, tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides of packed rows [T, H, D], as a binding takes them, [B, H, S, D]. Those of what is there once are the
    plan's."""
    row, head, element = tensor.stride()
    batch, plan_head, plan_row, _ = info.strides
    return batch, head if tensor.shape[1] > 1 else plan_head, row if len(tensor) > 1 else plan_row, element


def _view_of_pool(info: _libattn.TensorInfo, pool: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dims and strides of a pool [pages, page, Hkv, D] in the plan's order, [pages, Hkv, page, D]."""
    view = pool.transpose(1, 2)
    steps = [step if size > 1 else plan for size, step, plan in zip(view.shape, view.stride(), info.strides)]
    return tuple(view.shape), tuple(steps)


class BoundCall:
    """A binding that runs with other tensors of the same facts. For one thread at a time.

    `key`: of the plan. `own_schedule`: made before each run, whose handle is `schedule`; None: the caller makes
    another one. `most_columns`: of a block_table, of any stride."""

    def __init__(self, binding: _libattn.Binding, key: Key, tensors: Tensors, own_schedule: _libattn.Schedule | None,
                 most_columns: int):
        self.binding = binding
        self.key = key
        self.own_schedule = own_schedule
        self.schedule = None if own_schedule is None else own_schedule._handle.value.value
        self.most_columns = most_columns
        self.handle = 0
        self._is_captured = False
        self._ones: torch.Tensor | None = None
        self.handle = self._create(tensors)

    def __del__(self) -> None:
        if getattr(self, "handle", None) and _LIBRARY is not None:
            _LIBRARY.attn_bound_call_destroy(self.handle)

    @property
    def captured(self) -> bool:
        """Whether a CUDA graph has a run, and so uses the binding as long as it is replayed."""
        return self._is_captured or _LIBRARY.attn_bound_call_captured(self.handle) != 0

    def note_capture(self) -> None:
        """Says that a graph has one."""
        self._is_captured = True

    def _create(self, tensors: Tensors) -> int:
        infos = self.binding.executable.tensors
        places = {info.name: place for place, info in enumerate(infos)}
        described = [self._described(field, tensor, tensors, places)
                     for field, tensor in zip(Tensors._fields, tensors)]
        addresses = (ctypes.c_void_p * len(infos))()
        listed = (_Tensor * len(described))(*described)
        options = _Options(
            tensors=listed, tensor_count=len(described),
            addresses=ctypes.cast(addresses, ctypes.c_void_p), address_count=len(infos),
            least_sequences=0 if self.own_schedule is None else self.key.least_sequences,
            most_sequences=self.key.sequences,
            device_type=DEVICE_TYPE, device=max(tensors.q.get_device(), 0))
        handle = ctypes.c_void_p()
        error = _libattn._error_handle()
        status = _LIBRARY.attn_bound_call_create(self.binding._handle.value, direct.EXCHANGE, ctypes.byref(options),
                                                 tuple(tensors), ctypes.byref(handle), error)
        if status != 0:
            raise _libattn._failure(status, error)
        assert handle.value is not None
        return handle.value

    def _described(self, field: str, tensor: torch.Tensor | None, tensors: Tensors,
                   places: dict[str, int]) -> _Tensor:
        name = _NAMES[field]
        if field == "cu_seqlens_q" and tensor is None:
            # Each sequence has one row.
            self._ones = torch.arange(self.key.sequences + 1, dtype=torch.int32, device=tensors.q.device)
            return _Tensor(place=places[name], fixed=self._ones.data_ptr())
        if tensor is None:
            return _Tensor(place=-1)
        counts = _COUNTS.get(field, _NOTHING)
        if counts == _ROWS and tensors.cu_seqlens_q is None:
            counts = _SEQUENCES
        if field == "alibi_slopes" and tensor.dim() == 2:
            counts = _SEQUENCES
        columns = (self.key.columns, self.most_columns) if field == "block_table" else (0, 0)
        return _Tensor(place=places[name], counts=counts, rank=tensor.dim(), least_columns=columns[0],
                       most_columns=columns[1],
                       alignment=self.binding.executable.tensors[places[name]].alignment,
                       dims=_int64s(tensor.shape),
                       strides=_int64s(self._strides(field, tensor)))

    def _strides(self, field: str, tensor: torch.Tensor) -> tuple[int, ...]:
        """Those with which the tensor is bound."""
        if field == "block_table":
            return step_of_table(tensor), 1
        if field in ("q", "out"):
            info = next(info for info in self.binding.executable.tensors if info.name == _NAMES[field])
            _, head, row, element = _strides_of_rows(info, tensor)
            return row, head, element
        return tensor.stride()


_NAMES = {"q": "q", "k_cache": "k", "v_cache": "v", "seqused_k": "lengths_kv", "block_table": "page_table",
          "cu_seqlens_q": "cu_seqlens_q", "out": "o", "lse_out": "lse", "s_aux": "sinks", "alibi_slopes": "slopes"}
_COUNTS = {"q": _ROWS, "out": _ROWS, "lse_out": _ROWS, "seqused_k": _SEQUENCES, "block_table": _SEQUENCES,
           "cu_seqlens_q": _SEQUENCES_AND_1}


def make_call(executable: _libattn.Executable, key: Key, params: Sequence[int], tensors: Tensors,
              schedule: _libattn.Schedule, makes_it: bool, stream: int, most_columns: int = ANY_NUMBER) -> BoundCall:
    """A call of checked tensors with a schedule. `makes_it`: whether each run makes it before. `most_columns`: of a
    block_table in other runs."""
    binding = bind(executable, key, params, tensors, stream, tensors.q.device, schedule)
    return BoundCall(binding, key, tensors, schedule if makes_it else None, most_columns)


def with_call(others: Sequence[_AnyCall], call: _AnyCall) -> list[_AnyCall]:
    """The others and a new call, which is first; the oldest are left out if they are many, but for those that CUDA
    graphs use."""
    return [call, *others[:_MOST_VIEWS], *(other for other in others[_MOST_VIEWS:] if other.captured)]
