"""A launch in one native step: `python/native/call.h`, by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import NoReturn, Union

import torch

from attn import _libattn
from attn.torch import private
from attn.torch.signature import PLAIN


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
    library.attn_call_function.argtypes = [address, thing, thing]
    library.attn_call_function.restype = thing
    library.attn_call_error.argtypes, library.attn_call_error.restype = [address], address
    return library


def _exchange() -> int | None:
    """The address of PyTorch's DLPackExchangeAPI; None before PyTorch 2.10."""
    capsule = private.exchange_capsule()
    if capsule is None:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(capsule, b"dlpack_exchange_api"))


LIBRARY = _library()
EXCHANGE = _exchange()


Run = Callable[[tuple[torch.Tensor, ...], tuple[float, ...]], Union[tuple[torch.Tensor, ...], None]]


def make(executable: _libattn.Executable, device: torch.device, most_kept_workspace: int) -> Run | None:
    """The direct call of an executable: a builtin function of its inputs and params. It returns the outputs, or None if
    a tensor is not as the plan expects it, or the stream is being captured into a CUDA graph. None if the libraries
    that are there, or the executable, allow only the longer way."""
    if LIBRARY is None or EXCHANGE is None:
        return None
    handle = ctypes.c_void_p()
    status = LIBRARY.attn_call_create(
        executable._handle, EXCHANGE, device.index or 0, most_kept_workspace, ctypes.byref(handle), None
    )
    if status != 0:
        return None
    error = LIBRARY.attn_call_error(handle)

    def failed(status: int) -> NoReturn:
        raise _libattn._failure(status, error)

    run: Run = LIBRARY.attn_call_function(handle, tuple(PLAIN), failed)
    return run
