"""Errors of this package. Every error that it raises on purpose is an `attn.Error`.

    Error
      ArgumentError (ValueError)   an argument of a call is wrong
        BindingError               a tensor, size or param does not fit
      SpecError                    the spec has errors: `.diagnostics`
      UnsupportedError             valid, but no engine computes it on this target
      PlanError                    a plan file cannot be used: `.status`
        PlanVersionError           it was compiled for another version of cuDNN
        PlanDeviceError            it was compiled for another GPU architecture
      CudaError                    the driver failed or is missing
      CudnnError                   cuDNN failed or is missing
      NcclError                    NCCL failed or is missing, or a rank does not answer
      TraceError                   a Python function cannot be made into a spec
      CompilerError                attnc or libattn is missing, a file could not be read, or a bug
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence


class Error(Exception):
    """`message` is one sentence, `notes` say what was tried and what would work. `status` is the name
    that attn.h gives the failure ("plan_damaged"), or "" if it comes from Python."""

    def __init__(self, message: str, notes: Sequence[str] = (), status: str = ""):
        self.message = message
        self.notes = tuple(notes)
        self.status = status
        self.args = ("\n  note: ".join([message, *self.notes]),)  # super().__init__ is more than Dynamo follows

    def __reduce__(self) -> Any:  # other processes are told of it
        return _restored, (type(self), self.args, self.__dict__)


class ArgumentError(Error, ValueError):
    """An argument of a call is wrong."""


class BindingError(ArgumentError):
    """A tensor, size or param does not fit the spec or plan."""


@dataclass(frozen=True)
class Diagnostic:
    """One finding about a spec. Lines and columns begin with 1. `text` is what attnc prints: the message,
    the line of the spec, and carets."""

    file: str
    line: int
    column: int
    code: str
    severity: str
    message: str
    text: str = field(repr=False, default="")


class SpecError(Error):
    """The spec has errors. The text of the exception shows each with its line and carets."""

    def __init__(self, text: str, diagnostics: Sequence[Diagnostic] = ()):
        super().__init__(text, status="invalid_spec")
        self.diagnostics = tuple(diagnostics)


class SpecWarning(UserWarning):
    """A valid spec, or a call, that may not mean what was intended."""


class UnsupportedError(Error):
    """The spec is valid, but no engine computes it on this target; the notes have the reasons."""


class PlanError(Error):
    """A plan file cannot be used: `status` says why ("plan_damaged", "plan_foreign", ..)."""


class PlanVersionError(PlanError):
    """The plan was compiled for another version of cuDNN."""


class PlanDeviceError(PlanError):
    """The plan was compiled for another GPU architecture."""


class CudaError(Error):
    """The CUDA driver failed or is missing. `failure` is "out_of_memory", "fault" (the process must be
    restarted), "no_driver", "other" or "" (unknown); `code` the driver's CUresult, or 0."""

    def __init__(self, message: str, notes: Sequence[str] = (), status: str = "cuda",
                 failure: str = "", code: int = 0):
        super().__init__(message, notes, status)
        self.failure = failure
        self.code = code


class CudnnError(Error):
    """cuDNN failed, is missing, or is too old."""


class NcclError(Error):
    """NCCL failed, is missing, or is too old, or another rank does not answer."""


class TraceError(Error):
    """A Python function cannot be made into a spec: `filename`, `lineno` and `source_line` say where."""

    def __init__(self, message: str, notes: Sequence[str] = (), filename: str | None = None,
                 lineno: int | None = None, source_line: str | None = None):
        super().__init__(message, notes)
        self.filename = filename
        self.lineno = lineno
        self.source_line = source_line


class CompilerError(Error):
    """attnc or libattn is missing or failed, or a file could not be read or written."""


_BY_STATUS: dict[str, type[Error]] = {
    "invalid_argument": ArgumentError,
    "invalid_spec": SpecError,
    "unsupported": UnsupportedError,
    "binding": BindingError,
    "cuda": CudaError,
    "cudnn": CudnnError,
    "nccl": NcclError,
    "plan_version": PlanVersionError,
    "plan_device": PlanDeviceError,
}


def _restored(kind: type[Error], args: tuple[Any, ...], state: dict[str, Any]) -> Error:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def error_of(status: str, message: str, notes: Sequence[str] = ()) -> Error:
    """The error for a status of attn.h, by its name."""
    kind = _BY_STATUS.get(status)
    if kind is SpecError:
        return SpecError("\n  note: ".join([message, *notes]))
    if kind is None:
        kind = PlanError if status.startswith("plan_") else CompilerError
    return kind(message, notes, status)
