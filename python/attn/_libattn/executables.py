"""Plans that are loaded on a device, bindings that execute them, and schedules for these."""
from __future__ import annotations

import ctypes
import threading
from typing import Any, Mapping, Sequence

from attn import _find
from attn._libattn.declarations import (_WORKSPACE_CALLER, _WORKSPACE_OWNED, _BindOptions, _direction_name,
                                        _ExecutableInfo, _RuntimeInfo, _RuntimeOptions, _ScheduleOptions,
                                        library)
from attn._libattn.handles import _call, _error_handle, _failure, _Handle
from attn._libattn.plan_files import PlanFile, Tensor, _params, _tensors, arguments_of
from attn.errors import ArgumentError


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


class Executable:
    """A loaded plan of a file; nothing is compiled, and the same plan is loaded once. `tensors` and `params` are what
    to bind, `workspace_bytes` is the device memory that an execute needs besides; `device_bytes` is what the
    executable holds. Raises PlanVersionError and PlanDeviceError if the plan is not for this machine."""

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

    def bind(self, tensors: Mapping[str, Tensor], params: Mapping[str, float], workspace: int | None,
             kept_addresses: int = 8, stream: int | None = None, schedule: Schedule | None = None) -> Binding:
        """Checks everything that could make a kernel access wrong memory, and prepares executes.

        Each tensor is (device address, dtype, dims, strides in elements). `workspace` is the address of
        `workspace_bytes` of device memory, aligned to 256 bytes, that nothing else uses meanwhile; None:
        the binding allocates its own. `kept_addresses` sets of addresses stay prepared. `stream` is needed
        if it is being captured into a CUDA graph: nothing is waited for then, and values that scores are
        indexed by must have been checked by a binding before. `schedule`: one that the binding uses, so that a
        workspace of its own has no memory for what the schedule has.
        Raises BindingError, with one note for each further mistake."""
        arguments = arguments_of(tensors, params, {param.name: param.dtype for param in self.params})
        return Binding(self, arguments, workspace, kept_addresses, stream, schedule)


class Binding:
    """Checked tensors, params and a workspace: what `execute` runs with. For one thread at a time."""

    def __init__(self, executable: Executable, arguments: _Handle, workspace: int | None,
                 kept_addresses: int, stream: int | None = None, schedule: Schedule | None = None):
        self.executable = executable
        self._handle = _Handle("attn_binding_destroy")
        options = _BindOptions(
            workspace=_WORKSPACE_OWNED if workspace is None else _WORKSPACE_CALLER,
            workspace_memory=workspace, kept_addresses=kept_addresses, stream=stream,
            schedule=None if schedule is None else schedule._handle.value.value)
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
        self._addresses[:] = list(addresses)
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

    def use_schedule(self, schedule: Schedule | None) -> None:
        """Later executes use the schedule, which must have been built, instead of making their own; None: they make
        their own again. Raises BindingError if it is of a plan with another one."""
        _call("attn_binding_use_schedule", self._handle, None if schedule is None else schedule._handle)

    def check(self, stream: int) -> None:
        """Looks at what lengths, cu_seqlens and page tables hold, which no execute does, and waits for the stream.
        Raises BindingError, with the tensor and the place of the first number that is beyond the plan or the pool."""
        _call("attn_binding_check", self._handle, stream)

    def execute(self, stream: int) -> None:
        """Enqueues on a CUDA stream (0: the default stream) and returns without waiting. May be captured
        into a CUDA graph."""
        error = _error_handle()
        status = self._execute(self._handle.value, stream, error)
        if status != 0:
            raise _failure(status, error)


class Schedule:
    """Which blocks of threads compute what, in device memory: made once of the lengths of one binding, and used by
    many (attn/schedule.h). For one thread at a time. With `split_keys`, `capacity_keys` says how many keys all
    sequences have together at most.

    Raises UnsupportedError if the executable takes none, ArgumentError for options that cannot be, CudaError."""

    def __init__(self, executable: Executable, max_parts: int = 0, split_keys: int = 0, sm_margin: int = 0,
                 capacity_rows: int = 0, capacity_keys: int = 0):
        self._handle = _Handle("attn_schedule_destroy")
        options = _ScheduleOptions(max_parts=max_parts, split_keys=split_keys, sm_margin=sm_margin,
                                   capacity_rows=capacity_rows, capacity_keys=capacity_keys)
        _call("attn_schedule_create", executable._handle, ctypes.byref(options), self._handle.out)

    def build(self, binding: Binding, stream: int, sequences: int = -1, device_sequences: int | None = None,
              shared_keys: int = 0) -> None:
        """Enqueues the kernel that makes it of the lengths that the binding has. `sequences` of the plan's are
        computed, -1: all; or as many as the i32 at the device address `device_sequences` says. `shared_keys`: how many
        keys in the same pages all of these begin with, -1: the i32 behind that. May be captured into a CUDA graph.
        Raises BindingError, ArgumentError, UnsupportedError for shared keys, with the reason, CudaError."""
        _call("attn_schedule_build_shared", self._handle, binding._handle, device_sequences, sequences, shared_keys,
              stream)

    def flags(self, stream: int) -> int:
        """What did not fit when it was last built: 1: tiles were not divided, 2: a length is beyond the plan's, 4:
        shared keys are not read once. Waits for the stream. Raises CudaError."""
        flags = ctypes.c_uint32()
        _call("attn_schedule_flags", self._handle, stream, ctypes.byref(flags))
        return flags.value


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
