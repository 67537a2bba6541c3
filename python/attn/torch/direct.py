"""A launch in one native step: `python/native/call.h`, by ctypes."""

from __future__ import annotations

import ctypes

import torch

from attn import _libattn

_UNFIT = -1


def _library() -> ctypes.PyDLL | None:
    path = _libattn.path().parent / "libattn_call.so"
    if not path.is_file():
        return None
    library = ctypes.PyDLL(str(path))  # its functions need the global lock
    address, thing = ctypes.c_void_p, ctypes.py_object
    library.attn_call_create.argtypes = [
        address,
        address,
        ctypes.c_int32,
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_void_p),
        address,
    ]
    library.attn_call_destroy.argtypes = [address]
    library.attn_call_run.argtypes = [address, thing, thing, address]
    library.attn_call_run.restype = thing
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
    """Runs one executable; for streams that are not being captured into a CUDA graph."""

    def __init__(self, handle: int):
        self._handle = handle
        self._run = LIBRARY.attn_call_run

    def __del__(self) -> None:
        LIBRARY.attn_call_destroy(self._handle)

    def run(
        self, tensors: tuple[torch.Tensor, ...], params: tuple[float, ...]
    ) -> tuple[torch.Tensor, ...] | None:
        """The outputs, or None if a tensor is not as the plan expects it."""
        error = _libattn._error_handle()
        result = self._run(self._handle, tensors, params, error)
        if type(result) is tuple:
            return result
        if result == _UNFIT:
            return None
        raise _libattn._failure(result, error)


def make(executable: _libattn.Executable, device: torch.device, most_kept_workspace: int) -> Direct | None:
    """The direct call of an executable; None if the libraries that are there, or the executable, allow only the
    longer way."""
    if LIBRARY is None or EXCHANGE is None:
        return None
    handle = ctypes.c_void_p()
    status = LIBRARY.attn_call_create(
        executable._handle, EXCHANGE, device.index or 0, most_kept_workspace, ctypes.byref(handle), None
    )
    return Direct(handle.value) if status == 0 else None
