"""Runs attnc, the compiler, as a separate process, and turns its answers into values and errors."""
from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import warnings
from types import FrameType
from typing import Any, Mapping, Sequence

from . import _find
from .errors import CompilerError, Diagnostic, Error, SpecError, SpecWarning, error_of

_STDIN = "<stdin>"
_SPEC_ERRORS = 1
_FINDING = re.compile(r"^(?=(?:error|warning)\[)", re.MULTILINE)
_STATUS_OF_EXIT = {2: "invalid_argument", 3: "unsupported", 4: "worker", 5: "mismatch",
                   6: "plan_damaged", 70: "internal"}


def path() -> pathlib.Path:
    """The attnc that is used: $ATTN_ATTNC, else the one in this package, else the one that is built in
    this checkout, else the first in PATH. Raises CompilerError if there is none."""
    candidates = [_find.PACKAGE / "bin" / "attnc", _find.CHECKOUT / "build" / "attnc"]
    in_path = shutil.which("attnc")
    if in_path:
        candidates.append(pathlib.Path(in_path))
    return _find.find_file("attnc", "ATTN_ATTNC", candidates)


def run(arguments: Sequence[str], *, text: str = "", name: str = "<spec>",
        folder: str | os.PathLike[str] | None = None) -> Any:
    """Runs `attnc ARGUMENTS --format json` and returns what it prints, parsed.

    `text` is standard input, for the argument "-": a spec, which diagnostics call `name`, and whose
    imports are searched for in `folder`. Warnings about the spec are issued as SpecWarning. Any number of
    threads may call this. Raises the error that fits attnc's answer."""
    process = _start([*arguments, "--format", "json"], text, folder)
    printed = process.stderr.replace(_STDIN, name)
    if process.returncode not in (0, _SPEC_ERRORS):
        raise _error(process, printed, name)
    answer = _parse(process.stdout) if process.stdout.strip() else {}
    found = _diagnostics(answer)
    if found and not printed:  # `check` prints either form alone
        printed = _start(arguments, text, folder).stderr.replace(_STDIN, name)
    if process.returncode == _SPEC_ERRORS:
        raise _spec_error(found, printed, name)
    for finding in _findings(printed):
        if finding.startswith("warning["):
            warnings.warn(finding, SpecWarning, stacklevel=outside())
    return answer


def run_text(arguments: Sequence[str], *, text: str = "", name: str = "<spec>",
             folder: str | os.PathLike[str] | None = None) -> str:
    """The same for commands and options that print text. A SpecError has no diagnostics then."""
    process = _start(arguments, text, folder)
    printed = process.stderr.replace(_STDIN, name)
    if process.returncode == _SPEC_ERRORS:
        raise _spec_error((), printed, name)
    if process.returncode != 0:
        raise _error(process, printed, name)
    return process.stdout


def _start(arguments: Sequence[str], text: str,
           folder: str | os.PathLike[str] | None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([str(path()), *arguments], input=text, cwd=folder,
                              env=_environment(), capture_output=True, text=True,
                              encoding="utf-8", errors="replace", check=False)
    except OSError as error:
        raise CompilerError(f"attnc could not be started: {error}") from error


def _is_inside(frame: FrameType) -> bool:
    """Whether it is of this package, or of PyTorch, whose modules call attentions."""
    return str(frame.f_globals.get("__package__", "")).split(".")[0] in (__package__, "torch")


def outside() -> int:
    """The `stacklevel` for which a warning names the caller of this package, or of the PyTorch in between."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_inside(frame):
        level, frame = level + 1, frame.f_back
    return level


def _environment() -> dict[str, str]:
    """attnc looks for NVIDIA's wheels in the Python that these variables name: this one. What it prints is
    parsed, so it must not be coloured."""
    environment = dict(os.environ)
    environment["VIRTUAL_ENV"] = sys.prefix
    environment["NO_COLOR"] = "1"
    return environment


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CompilerError("attnc printed something that is not JSON", [text[:200]]) from error


def _findings(printed: str) -> list[str]:
    return [part.rstrip() for part in _FINDING.split(printed)
            if part.startswith(("error[", "warning["))]


def _diagnostics(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "specs" in answer:  # of `check`
        return [one for spec in answer["specs"] for one in spec["diagnostics"]]
    return answer.get("diagnostics", [])


def _spec_error(found: Sequence[dict[str, Any]], printed: str, name: str) -> SpecError:
    texts = _findings(printed)
    if len(texts) != len(found):
        texts = [""] * len(found)
    return SpecError(printed.strip(), [
        Diagnostic(name if one["file"] == _STDIN else one["file"], one["line"], one["column"],
                   one["code"], one["severity"], one["message"], text)
        for one, text in zip(found, texts)])


def _error(process: subprocess.CompletedProcess[str], printed: str, name: str) -> Error:
    """The error of an attnc that failed for another reason than a spec with errors."""
    if process.returncode < 0:
        return CompilerError(f"attnc was ended by signal {-process.returncode}", [printed.strip()])
    try:
        error = json.loads(process.stdout)["error"]
    except (ValueError, KeyError):  # text was asked for, or the command line was refused
        status = _STATUS_OF_EXIT.get(process.returncode, "internal")
        return error_of(status, printed.strip() or f"attnc failed with exit code {process.returncode}")
    return error_of(error["code"], error["message"].replace(_STDIN, name), error.get("notes", ()))
