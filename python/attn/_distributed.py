"""libattn's C API of attentions that several GPUs compute (runtime/api/runtime/api/attn/distributed.h) by ctypes.

As in _libattn, tensors are given as addresses. A Distributed and its bindings are for one thread at a time,
and what is said to be collective must be called by every rank, in the same order."""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import threading
import weakref
from typing import Any, Callable, Iterator, Mapping, Sequence

from . import _libattn
from ._libattn import (_DIRECTIONS, _I32, _I64, _POINTER, _REAL, _SIZE, _TEXT, Runtime, _call, _Handle,
                       _params, _Struct, _tensors)
from .errors import ArgumentError, CompilerError

ROWS, KEYS = 0, 1
_ABORT = ctypes.CFUNCTYPE(None, _POINTER)
_LOST = ctypes.CFUNCTYPE(_I32, _POINTER, _POINTER, _SIZE)
_laters: dict[int, _libattn.Later] = {}
_laters_lock = threading.Lock()
_opened: weakref.WeakSet[Distributed] = weakref.WeakSet()


@atexit.register
def close_all() -> None:
    """While there still are a device and an interpreter. A thread of the library may be in `abort`, and dies
    with the process if it comes back when the interpreter is gone. What refers to an object, such as the
    traceback of its error, may live until then: so objects are closed, whoever has them."""
    for each in list(_opened):
        each.close()
    later = _laters.get(os.getpid())
    if later is not None:
        later.finish()


def _later() -> _libattn.Later:
    """What threads of the library leave to another one, in this process."""
    process = os.getpid()
    with _laters_lock:
        if process not in _laters:
            _laters[process] = _libattn.Later()
        return _laters[process]


class _Options(_Struct):
    _fields_ = [("size", _SIZE), ("communicator", _POINTER), ("nccl_folder", _TEXT),
                ("timeout_seconds", _I32), ("directions", _I32), ("abort", _ABORT),
                ("abort_user", _POINTER), ("sha256", _TEXT), ("verify", _POINTER),
                ("verify_user", _POINTER), ("lost", _LOST), ("lost_user", _POINTER)]


class _Interval(ctypes.Structure):
    _fields_ = [("begin", _I64), ("end", _I64)]


class _Info(_Struct):
    _fields_ = [("size", _SIZE), ("name", _TEXT), ("family", _TEXT), ("sharding", _TEXT), ("rank", _I32),
                ("ranks", _I32), ("rows", ctypes.POINTER(_Interval)), ("row_intervals", _SIZE),
                ("keys", ctypes.POINTER(_Interval)), ("key_intervals", _SIZE), ("device_bytes", _I64),
                ("directions", _I32), ("reserved", _I32)]


_FALLIBLE: dict[str, list[Any]] = {
    "attn_distributed_open_memory": [_POINTER, _TEXT, _SIZE, _POINTER, _POINTER],
    "attn_distributed_describe": [_POINTER, _POINTER],
    "attn_distributed_home": [_POINTER, _I32, _I32, _POINTER, _SIZE, _POINTER],
    "attn_distributed_tensor": [_POINTER, _I32, _SIZE, _POINTER],
    "attn_distributed_param": [_POINTER, _I32, _SIZE, _POINTER],
    "attn_distributed_binding_create": [_POINTER, _I32, _POINTER, _POINTER, _POINTER],
    "attn_distributed_binding_set_addresses": [_POINTER, _POINTER, _SIZE, _I32, _POINTER],
    "attn_distributed_binding_set_param": [_POINTER, _TEXT, _REAL],
    "attn_distributed_execute": [_POINTER, _POINTER],
    "attn_distributed_status": [_POINTER],
    "attn_distributed_abort": [_POINTER, _TEXT],
}
_OTHERS: dict[str, tuple[Any, list[Any]]] = {
    "attn_distributed_tensor_count": (_SIZE, [_POINTER, _I32]),
    "attn_distributed_param_count": (_SIZE, [_POINTER, _I32]),
    "attn_distributed_destroy": (None, [_POINTER]),
    "attn_distributed_binding_destroy": (None, [_POINTER]),
}


@functools.lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """libattn with these functions. Raises CompilerError if it is an older one, which lacks them."""
    loaded = _libattn.library()
    try:
        _libattn.declare(loaded, _FALLIBLE, _OTHERS)
    except AttributeError as error:
        raise CompilerError(f"{_libattn.path()} cannot run attentions on several GPUs: {error}") from error
    return loaded


class Distributed:
    """One rank of an attention that is divided among several GPUs, with its plans and the device memory
    that it needs besides the caller's tensors. Opening one is collective.

    `contents` is the file of `attnc compile --ranks`, `communicator` the address of NCCL's ncclComm_t of as
    many ranks, on the runtime's device, which the caller keeps while this exists. `abort` is called once at
    most, perhaps by another thread, when a rank does not answer within `timeout_seconds`: it must end all that waits
    for the communicator; without it, ncclCommAbort does. `lost` is asked about every second, by another thread or
    the one that opens, while ranks wait for each other: a text says why they wait in vain, and ends that at
    once; None lets them wait. `directions` are those to load, None for all.

    Raises, on every rank: NcclError if NCCL is missing or fails or a rank does not answer; ArgumentError if
    the communicator does not fit the file; CompilerError ("mismatch") if ranks have different files;
    what `Runtime.load` does, and CudaError if memory is exhausted, also if that happened on another rank."""

    def __init__(self, runtime: Runtime, contents: bytes, communicator: int, *,
                 timeout_seconds: int = 30, directions: Sequence[str] | None = None,
                 nccl_folder: str | None = None, abort: Callable[[], None] | None = None,
                 lost: Callable[[], str | None] | None = None):
        library()
        self.runtime = runtime
        self._bindings: weakref.WeakSet[Binding] = weakref.WeakSet()
        later = _later()
        callbacks = _aborting(abort, later), _losing(lost, later)
        self._handle = _Handle("attn_distributed_destroy", callbacks)
        options = _Options(
            communicator=communicator, nccl_folder=nccl_folder.encode() if nccl_folder else None,
            timeout_seconds=timeout_seconds, abort=callbacks[0], lost=callbacks[1],
            directions=sum(1 << _DIRECTIONS[direction] for direction in directions or ()))
        _call("attn_distributed_open_memory", runtime._handle, contents, len(contents),
              ctypes.byref(options), self._handle.out)
        _opened.add(self)
        info = _Info()
        _call("attn_distributed_describe", self._handle, ctypes.byref(info))
        self.name: str = info.name.decode()
        self.family: str = info.family.decode()
        self.sharding: str = info.sharding.decode()
        self.rank: int = info.rank
        self.ranks: int = info.ranks
        self.device_bytes: int = info.device_bytes
        self.directions = tuple(direction for direction, bit in _DIRECTIONS.items()
                                if info.directions >> bit & 1)
        self.tensors = {direction: _tensors(self._count("tensor", direction), "attn_distributed_tensor",
                                            self._handle, _DIRECTIONS[direction])
                        for direction in self.directions}
        self.params = {direction: _params(self._count("param", direction), "attn_distributed_param",
                                          self._handle, _DIRECTIONS[direction])
                       for direction in self.directions}

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()

    def close(self) -> None:
        """Frees it and its bindings; later calls raise ArgumentError. Waits for what the device does for it,
        and for `abort` or `lost`, if another thread is in it."""
        for binding in list(self._bindings):
            binding.close()
        self._handle.destroy()

    def _count(self, what: str, direction: str) -> int:
        return int(getattr(library(), f"attn_distributed_{what}_count")(self._handle, _DIRECTIONS[direction]))

    def home(self, rank: int, which: int) -> tuple[tuple[int, int], ...]:
        """The ROWS (of q, o and their gradients) or KEYS (of k and v) that any rank has: begin and end of
        intervals, ascending."""
        count = _SIZE()
        _call("attn_distributed_home", self._handle, rank, which, None, 0, ctypes.byref(count))
        intervals = (_Interval * count.value)()
        _call("attn_distributed_home", self._handle, rank, which, intervals, count.value,
              ctypes.byref(count))
        return tuple((each.begin, each.end) for each in intervals)

    def bind(self, direction: str, tensors: Mapping[str, tuple[int, str, Sequence[int], Sequence[int]]],
             params: Mapping[str, float], stream: int | None = None) -> Binding:
        """Checks this rank's tensors, each (device address, dtype, dims, strides in elements). `stream` is
        needed if it is being captured into a CUDA graph: values must then have been checked by a binding
        before, of the same tensors. Not collective. Raises BindingError, with one note for each
        further mistake."""
        if direction not in self.directions:
            has = " and ".join(self.directions)
            raise ArgumentError(f"`{self.name}` was not compiled or loaded for {direction}: it has {has}")
        dtypes = {param.name: param.dtype for param in self.params[direction]}
        return Binding(self, direction, _libattn.arguments_of(tensors, params, dtypes), stream)

    def check(self) -> None:
        """Raises NcclError if an exchange until now failed. After synchronizing with the stream, tells
        whether the outputs are valid; they are not, and this is of no more use, if it raises."""
        _call("attn_distributed_status", self._handle)

    def abort(self, why: str) -> None:
        """Gives up all exchanges, as after a failure of NCCL: later calls raise NcclError with the reason. Not
        collective."""
        _call("attn_distributed_abort", self._handle, why.encode())


def _aborting(abort: Callable[[], None] | None, later: _libattn.Later) -> Any:
    """The callback that the library calls to give up, or an empty one."""
    if abort is None:
        return _ABORT()

    def call(user: Any) -> None:
        with _leaving_to(later):
            abort()

    return _ABORT(call)


def _losing(lost: Callable[[], str | None] | None, later: _libattn.Later) -> Any:
    if lost is None:
        return _LOST()

    def call(user: Any, text: int, capacity: int) -> int:
        with _leaving_to(later):
            why = lost()
            if why is not None:
                said = why.encode()[: capacity - 1].decode(errors="ignore").encode()
                ctypes.memmove(text, said + b"\0", len(said) + 1)
            return int(why is not None)

    return _LOST(call)


@contextlib.contextmanager
def _leaving_to(later: _libattn.Later) -> Iterator[None]:
    """Runs on the watcher thread; must not run destructors, which might wait for what only this thread ends."""
    of_thread = _libattn.of_thread
    before, of_thread.later = of_thread.later, later
    try:
        yield
    finally:
        of_thread.later = before


class Binding:
    """Checked tensors and params of one direction, for one thread at a time."""

    def __init__(self, distributed: Distributed, direction: str, arguments: _Handle,
                 stream: int | None = None):
        self.distributed = distributed
        self.kept: list[Any] = []  # what must live as long as the addresses are those of now
        # What the binding shares with its object may call `abort` and `lost` until both are destroyed.
        self._handle = _Handle("attn_distributed_binding_destroy", owner=distributed._handle)
        options = _libattn._BindOptions(stream=stream)
        _call("attn_distributed_binding_create", distributed._handle, _DIRECTIONS[direction], arguments,
              ctypes.byref(options), self._handle.out)
        distributed._bindings.add(self)
        self._addresses = (ctypes.c_void_p * len(distributed.tensors[direction]))()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()  # before the object that it belongs to

    def close(self) -> None:
        """Releases the binding's memory, after its executes. Later calls of it fail; closing twice is harmless."""
        self._handle.destroy()

    def set_addresses(self, addresses: Sequence[int], checked: bool = False, stream: int | None = None) -> None:
        """Later executes use other memory of the same shapes and strides, in the order of `tensors`. `checked`:
        whether the caller has checked that they are valid and aligned, and have the values that the
        attention was divided for, if it was; comparing these waits for what `stream` was given, without one
        for the device. While it is captured, they must have been compared before (else BindingError)."""
        count = len(addresses)
        if count != len(self._addresses):
            raise ArgumentError(f"{count} addresses are given for {len(self._addresses)} tensors")
        self._addresses[:] = list(addresses)
        _call("attn_distributed_binding_set_addresses", self._handle, self._addresses, count, int(checked),
              stream)

    def set_param(self, name: str, value: float) -> None:
        """Later executes use this value of a param."""
        _call("attn_distributed_binding_set_param", self._handle, name.encode(), value)

    def execute(self, stream: int) -> None:
        """Collective. Enqueues on a CUDA stream, and exchanges on another one beside it, and returns without
        waiting. May be captured into a CUDA graph. Executes of one Distributed share its memory, so those on
        different streams must not overlap. Raises NcclError if an earlier exchange failed."""
        _call("attn_distributed_execute", self._handle, stream)
