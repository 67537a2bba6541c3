"""A launch in one native step: `python/native/call.h`, by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from attn import _libattn

_DONE, _UNFIT = 0, -1


def _library() -> ctypes.PyDLL | None:
    path = _libattn.path().parent / "libattn_call.so"
    if not path.is_file():
        return None
    library = ctypes.PyDLL(str(path))  # its functions need the global lock
    address = ctypes.c_void_p
    library.attn_call_create.argtypes = [
        address,
        address,
        ctypes.c_int32,
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_void_p),
        address,
    ]
    library.attn_call_destroy.argtypes = [address]
    library.attn_call_run.argtypes = [address] * 5
    return library


def _exchange() -> int | None:
    """The address of PyTorch's DLPackExchangeAPI; None before PyTorch 2.10."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return pointer(capsule, b"dlpack_exchange_api")


LIBRARY = _library()
EXCHANGE = _exchange()


class Direct:
    """Runs one executable. Its results are lists of tensors, or None for tensors that do not fit."""

    def __init__(self, handle: int, inputs: int, params: int, outputs: int):
        self._handle = handle
        self._inputs = ctypes.py_object * inputs
        self._params = ctypes.c_double * max(1, params)
        self._outputs = ctypes.c_void_p * outputs

    def __del__(self) -> None:
        LIBRARY.attn_call_destroy(self._handle)

    def run(self, tensors: Sequence[torch.Tensor], params: Sequence[float]) -> list[torch.Tensor] | None:
        made = self._outputs()
        error = _libattn._error_handle()
        try:
            status = LIBRARY.attn_call_run(
                self._handle, self._inputs(*tensors), self._params(*params), made, error
            )
        except Exception:  # the framework's, about a tensor that it could not convert or allocate
            return None
        if status == _DONE:
            return [_owned(address) for address in made]
        if status == _UNFIT:
            return None
        raise _libattn._failure(status, error)


def _owned(address: int) -> torch.Tensor:
    """The object at an address, of which a reference is passed on."""
    tensor = ctypes.cast(address, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(tensor))
    return tensor


def make(executable: _libattn.Executable, device: torch.device, most_kept_workspace: int) -> Direct | None:
    """None if the libraries at hand, or the executable, allow only the longer way."""
    if LIBRARY is None or EXCHANGE is None:
        return None
    handle = ctypes.c_void_p()
    status = LIBRARY.attn_call_create(
        executable._handle, EXCHANGE, device.index or 0, most_kept_workspace, ctypes.byref(handle), None
    )
    if status != 0:
        return None
    inputs = sum(not info.is_output for info in executable.tensors)
    return Direct(handle.value, inputs, len(executable.params), len(executable.tensors) - inputs)
