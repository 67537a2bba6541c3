"""libattn's C API (runtime/api/attn.h) by ctypes.

Objects of this module may be used by any number of threads at once, except Binding, which is for one
thread at a time. ctypes releases the GIL during each call. Tensors are given as addresses: their owner
must keep them alive, and must order work on streams."""
from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import queue
import threading
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from . import _find
from .errors import ArgumentError, CompilerError, CudaError, Error, error_of

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
                ("alignment", _I64), ("addressed_by", _TEXT), ("bytes", _I64)]


class _ParamInfo(_Struct):
    _fields_ = [("size", _SIZE), ("name", _TEXT), ("dtype", _I32), ("reserved", _I32)]


class _Tensor(_Struct):
    _fields_ = [("size", _SIZE), ("name", _TEXT), ("data", _POINTER), ("dtype", _I32),
                ("rank", _I32), ("dims", _I64S), ("strides", _I64S)]


class _BindOptions(_Struct):
    _fields_ = [("size", _SIZE), ("workspace", _I32), ("reserved", _I32),
                ("workspace_memory", _POINTER), ("kept_addresses", _U64), ("stream", _POINTER)]


# Functions that can fail: they return a status and take an error last.
_FALLIBLE = {
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
    "attn_arguments_create": [_POINTER],
    "attn_arguments_tensor": [_POINTER, _POINTER],
    "attn_arguments_param": [_POINTER, _TEXT, _I32, _REAL],
    "attn_binding_create": [_POINTER, _POINTER, _POINTER, _POINTER],
    "attn_binding_set_param": [_POINTER, _TEXT, _REAL],
    "attn_binding_set_addresses": [_POINTER, _POINTER, _SIZE, _I32],
    "attn_binding_set_workspace": [_POINTER, _POINTER],
    "attn_binding_execute": [_POINTER, _POINTER],
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
    return library().attn_version().decode()


@dataclass(frozen=True)
class TensorInfo:
    """A tensor to bind. Dims are in logical order, strides in elements; `role` is a name of attn_role_name
    ("query", "captured", "gradient"), `alignment` is in bytes. `bytes` is what to allocate."""

    name: str
    role: str
    dtype: str
    is_output: bool
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int
    addressed_by: str
    bytes: int


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


class Runtime:
    """A device with its primary context, the cuDNN that is used on it, and a cache of executables. The
    cuDNN is loaded when a plan needs it; one that is already loaded in this process is preferred.

    Raises CudaError if there is no driver or no such device."""

    def __init__(self, device: int = 0, cudnn_folder: str | None = None):
        self.device = device
        self._handle = _Handle("attn_runtime_release")
        folder = cudnn_folder.encode() if cudnn_folder else None
        options = _RuntimeOptions(device=device, cudnn_folder=folder)
        _call("attn_runtime_open", ctypes.byref(options), self._handle.out)

    def describe(self) -> dict[str, Any]:
        """device_name, device, sm (90 for Hopper), cudnn_version (0: cannot be loaded), cudnn_library."""
        info = _RuntimeInfo()
        _call("attn_runtime_describe", self._handle, ctypes.byref(info))
        return {"device_name": info.device_name.decode(), "device": info.device, "sm": info.sm,
                "cudnn_version": info.cudnn_version, "cudnn_library": info.cudnn_library.decode()}

    def load(self, plan: bytes | PlanFile, direction: str, index: int | None = None) -> Executable:
        """Loads a plan of a plan file's contents; nothing is compiled. The same plan is loaded once.

        Raises PlanVersionError and PlanDeviceError if it is not for this machine, PlanError if the file
        cannot be read, ArgumentError if the file has no or several plans of the direction."""
        file = plan if isinstance(plan, PlanFile) else PlanFile(plan)
        return Executable(self, file, file.find(direction, index))


class Executable:
    """A loaded plan. `tensors` and `params` are what to bind, `workspace_bytes` is the device memory that
    an execute needs besides; `device_bytes` is what the executable holds."""

    def __init__(self, runtime: Runtime, file: PlanFile, index: int):
        self._handle = _Handle("attn_executable_release")
        _call("attn_executable_load_plan", runtime._handle, file._handle, index, self._handle.out)
        info = _ExecutableInfo()
        _call("attn_executable_describe", self._handle, ctypes.byref(info))
        self.runtime = runtime
        self.name: str = info.name.decode()
        self.signature: str = info.signature.decode()
        self.target: str = info.target.decode()
        self.direction: str = _direction_name(info.direction)
        self.workspace_bytes: int = info.workspace_bytes
        self.device_bytes: int = info.device_bytes
        self.spec: str = file.plans[index].spec
        self.tensors = _tensors(info.tensor_count, "attn_executable_tensor", self._handle)
        self.params = _params(info.param_count, "attn_executable_param", self._handle)

    def bind(self, tensors: Mapping[str, tuple[int, str, Sequence[int], Sequence[int]]],
             params: Mapping[str, float], workspace: int | None,
             kept_addresses: int = 8, stream: int | None = None) -> Binding:
        """Checks everything that could make a kernel access wrong memory, and prepares executes.

        Each tensor is (device address, dtype, dims, strides in elements). `workspace` is the address of
        `workspace_bytes` of device memory, aligned to 256 bytes, that nothing else uses meanwhile; None:
        the binding allocates its own. `kept_addresses` sets of addresses stay prepared. `stream` is needed
        if it is being captured into a CUDA graph: nothing is waited for then, and values that scores are
        indexed by must have been checked by a binding before.
        Raises BindingError, with one note for each further mistake."""
        arguments = arguments_of(tensors, params, {param.name: param.dtype for param in self.params})
        return Binding(self, arguments, workspace, kept_addresses, stream)


def arguments_of(tensors: Mapping[str, tuple[int, str, Sequence[int], Sequence[int]]],
                 params: Mapping[str, float], dtypes: Mapping[str, str]) -> _Handle:
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


class Binding:
    """Checked tensors, params and a workspace: what `execute` runs with. For one thread at a time."""

    def __init__(self, executable: Executable, arguments: _Handle, workspace: int | None,
                 kept_addresses: int, stream: int | None = None):
        self.executable = executable
        self._handle = _Handle("attn_binding_destroy")
        options = _BindOptions(
            workspace=_WORKSPACE_OWNED if workspace is None else _WORKSPACE_CALLER,
            workspace_memory=workspace, kept_addresses=kept_addresses, stream=stream)
        _call("attn_binding_create", executable._handle, arguments, ctypes.byref(options),
              self._handle.out)
        self._addresses = (ctypes.c_void_p * len(executable.tensors))()
        self._execute = library().attn_binding_execute
        self._set_addresses = library().attn_binding_set_addresses

    def set_addresses(self, addresses: Sequence[int], checked: bool = False) -> None:
        """Later executes use other memory of the same shapes: addresses in the order of the executable's
        tensors. `checked`: whether the caller has checked that they are valid and aligned."""
        count = len(addresses)
        if count != len(self._addresses):
            raise ArgumentError(f"{count} addresses are given for {len(self._addresses)} tensors")
        self._addresses[:] = addresses
        error = _error_handle()
        status = self._set_addresses(self._handle.value, self._addresses, count, int(checked), error)
        if status != 0:
            raise _failure(status, error)

    def set_workspace(self, address: int) -> None:
        """Later executes use this workspace, which the caller owns."""
        _call("attn_binding_set_workspace", self._handle, address)

    def set_param(self, name: str, value: float) -> None:
        """Later executes use this value of a param."""
        _call("attn_binding_set_param", self._handle, name.encode(), value)

    def execute(self, stream: int) -> None:
        """Enqueues on a CUDA stream (0: the default stream) and returns without waiting. May be captured
        into a CUDA graph."""
        error = _error_handle()
        status = self._execute(self._handle.value, stream, error)
        if status != 0:
            raise _failure(status, error)


_runtimes: dict[int, Runtime] = {}
_runtimes_lock = threading.Lock()


def runtime(device: int = 0) -> Runtime:
    """The runtime of a device, opened once and kept for the life of the process. It uses the cuDNN that
    is already loaded, else the newest of NVIDIA's wheels for this Python, else what libattn finds."""
    with _runtimes_lock:
        if device not in _runtimes:
            loaded = _find.loaded_cudnn() is not None  # libattn prefers it, if no folder is given
            _runtimes[device] = Runtime(device, None if loaded else _find.cudnn_folder())
        return _runtimes[device]


class Later:
    """Calls that are made one after the other by a thread of their own, in the process that made this."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, call: Callable[[], object]) -> None:
        """Adds a call, from any thread, also while garbage is collected: it takes no lock that a thread may have
        there."""
        self._calls.put(call)

    def finish(self) -> None:
        """Waits until those that were added are made, or nobody makes them any more."""
        done = threading.Event()
        self.add(done.set)
        while not done.wait(0.1) and self._thread.is_alive():
            pass

    def _run(self) -> None:
        while True:
            try:
                self._calls.get()()
            except BaseException as error:
                _Ignored(error)


class _Ignored:
    """An exception of which Python tells that it was ignored, by sys.unraisablehook, which takes none from others."""

    def __init__(self, error: BaseException):
        self._error = error

    def __del__(self) -> None:
        raise self._error


class _OfThread(threading.local):
    """The queue to which a thread leaves handles to destroy, if it must not wait for that itself: garbage of
    anything is collected in any thread."""

    later: Later | None = None


of_thread = _OfThread()


class _Handle:
    """Owns a handle of the library; `out` receives it. In a forked process it is of no use, and not destroyed:
    the threads that it may wait for are not there. `kept` lives as long, and so does `owner`, which is destroyed
    after this one: garbage may be collected in any order."""

    def __init__(self, destroy: str, kept: object = None, owner: _Handle | None = None):
        self._process = os.getpid()
        self._kept, self._owner = kept, owner
        self._owned: set[_Handle] = set()  # to be destroyed before
        self.value = ctypes.c_void_p()
        self._as_parameter_ = self.value
        self._destroy = getattr(library(), destroy)
        if owner is not None:
            owner._owned.add(self)

    @property
    def out(self) -> Any:
        return ctypes.byref(self.value)

    def destroy(self) -> None:
        """The library then refuses the handle, which is null."""
        for each in list(self._owned):
            each.destroy()
        if self._owner is not None:
            self._owner._owned.discard(self)
        destroyed = ctypes.c_void_p(self.value.value)
        self.value.value = None
        if os.getpid() != self._process:
            return
        if of_thread.later is None:
            self._destroy(destroyed)
        else:
            of_thread.later.add(functools.partial(_destroyed, self._destroy, destroyed, self._kept, self._owner))

    def __del__(self) -> None:
        if getattr(self, "_destroy", None) is not None:
            self.destroy()


def _destroyed(destroy: Callable[[ctypes.c_void_p], None], handle: ctypes.c_void_p, *kept: object) -> None:
    destroy(handle)


class _ThreadError(threading.local):
    """The attn_error of a thread."""

    def __init__(self) -> None:
        self.handle = library().attn_error_create()
        if not self.handle:
            raise MemoryError("attn_error_create")
        self._destroy = library().attn_error_destroy

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._destroy(self.handle)


_error_handle_lock = threading.Lock()
_thread_error: _ThreadError | None = None


def _error_handle() -> int:
    global _thread_error
    if _thread_error is None:
        with _error_handle_lock:
            if _thread_error is None:
                _thread_error = _ThreadError()
    return _thread_error.handle


def _call(name: str, *arguments: Any) -> None:
    function = getattr(library(), name)
    error = _error_handle()
    status = function(*arguments, error)
    if status != 0:
        raise _failure(status, error)


def _failure(status: int, error: int) -> Error:
    name = library().attn_status_name(status).decode()
    message = library().attn_error_message(error).decode(errors="replace")
    count = library().attn_error_note_count(error)
    notes = [library().attn_error_note(error, at).decode(errors="replace") for at in range(count)]
    if name == "cuda":
        failure = _CUDA_FAILURES.get(library().attn_error_cuda_failure(error), "")
        return CudaError(message, notes, name, failure, library().attn_error_cuda_code(error))
    if name in ("plan_version", "plan_device"):
        notes.append("attn.load(path, recompile=True) does that, with a warning")
    return error_of(name, message, notes)


def _direction_name(number: int) -> str:
    return _BACKWARD if number == _DIRECTIONS[_BACKWARD] else _FORWARD


def _dtype_number(name: str, dtype: str) -> int:
    if dtype not in _DTYPES:
        raise ArgumentError(f"{name} has dtype {dtype!r}, which no plan has",
                            [f"dtypes are {', '.join(_DTYPES)}"])
    return _DTYPES[dtype]


def _int64s(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def _tensors(count: int, function: str, *where: Any) -> tuple[TensorInfo, ...]:
    def one(index: int) -> TensorInfo:
        info = _TensorInfo()
        _call(function, *where, index, ctypes.byref(info))
        return TensorInfo(
            info.name.decode(), library().attn_role_name(info.role).decode(),
            _DTYPE_NAMES[info.dtype], bool(info.is_output), tuple(info.dims[:info.rank]),
            tuple(info.strides[:info.rank]), info.alignment, info.addressed_by.decode(), info.bytes)

    return tuple(one(index) for index in range(count))


def _params(count: int, function: str, *where: Any) -> tuple[ParamInfo, ...]:
    def one(index: int) -> ParamInfo:
        info = _ParamInfo()
        _call(function, *where, index, ctypes.byref(info))
        return ParamInfo(info.name.decode(), _DTYPE_NAMES[info.dtype])

    return tuple(one(index) for index in range(count))
