"""Handles of libattn and its errors: what every call of a function needs."""
from __future__ import annotations

import ctypes
import functools
import os
import queue
import threading
from typing import Any, Callable

from attn._libattn.declarations import _CUDA_FAILURES, library
from attn.errors import CudaError, Error, error_of


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
    """An exception to report by sys.unraisablehook. Only Python itself can pass exceptions to this hook, so
    `__del__` raises it: Python ignores exceptions there, and reports them."""

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
    return int(_thread_error.handle)


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
