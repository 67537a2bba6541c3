"""Runs attnc, the compiler, as one separate process, and turns its answers into values and errors."""
from __future__ import annotations

import atexit
import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import warnings
from types import FrameType
from typing import Any, NamedTuple, Sequence

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
    answer, printed = ask(arguments, text=text, name=name, folder=folder)
    warn(printed)
    return answer


def ask(arguments: Sequence[str], *, text: str = "", name: str = "<spec>",
        folder: str | os.PathLike[str] | None = None) -> tuple[Any, str]:
    """The same without warnings: they are in the text that is returned beside the answer, for `warn`."""
    process = _start([*arguments, "--format", "json"], text, folder)
    printed = process.stderr.replace(_STDIN, name)
    if process.returncode not in (0, _SPEC_ERRORS):
        raise _error(process, printed, name)
    answer = _parse(process.stdout) if process.stdout.strip() else {}
    if process.returncode == _SPEC_ERRORS:
        raise _spec_error(answer.get("diagnostics", []), printed, name)
    return answer, printed


def warn(printed: str) -> None:
    """Issues the warnings about a spec in what attnc printed as SpecWarning."""
    for finding in _findings(printed):
        if finding.startswith("warning["):
            warnings.warn(finding, SpecWarning, stacklevel=outside())


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


class _Ended(NamedTuple):
    """What a command of attnc did: its exit code, or the negative number of the signal that ended it."""

    returncode: int
    stdout: str
    stderr: str


class _Server:
    """The process of attnc that runs the commands of this one (tools/serve.h), until this one ends."""

    def __init__(self, program: pathlib.Path):
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen([str(program), "serve"], stdin=theirs.fileno(), stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL, start_new_session=True)

    def connect(self) -> socket.socket:
        """A connection for one command. Raises OSError if the process has ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"."], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def close(self) -> int:
        """Ends the process. Returns its exit code."""
        self._control.close()
        return self._process.wait()


_server: _Server | None = None
_program: Any = None  # the file that the server runs, of a time
_lock = threading.Lock()


def _close() -> None:
    if _server is not None:
        _server.close()


atexit.register(_close)


def _connection() -> tuple[_Server, socket.socket]:
    """A connection to the server, which is started first if there is none, or another attnc is used now."""
    global _server, _program
    program = path()
    status = program.stat()
    wanted = (program, status.st_ino, status.st_mtime_ns)
    with _lock:
        if _server is not None and _program == wanted:
            try:
                return _server, _server.connect()
            except OSError:  # somebody ended it
                pass
        if _server is not None:
            _server.close()
        _server, _program = _Server(program), wanted
        return _server, _server.connect()


def _start(arguments: Sequence[str], text: str, folder: str | os.PathLike[str] | None) -> _Ended:
    request = {"arguments": [*arguments], "input": text, "folder": os.fspath(folder or os.getcwd()),
               "environment": _environment()}
    try:
        server, connection = _connection()
    except ConnectionError as error:
        if _server is None:
            raise CompilerError(f"attnc could not be started: {error}") from error
        return _lost(_server)
    except OSError as error:
        raise CompilerError(f"attnc could not be started: {error}") from error
    answer = b""
    with connection, contextlib.suppress(ConnectionError):
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    if not answer:
        return _lost(server)
    said = json.loads(answer)
    return _Ended(said.get("code", -said.get("signal", 0)), said["output"], said["errors"])


def _lost(server: _Server) -> _Ended:
    """What is said for a command whose server ended before it."""
    code = server.close()
    return _Ended(code, "", "" if code < 0 else f"attnc serve ended with exit code {code}")


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
    environment = {name: value.encode(errors="surrogateescape").decode(errors="replace")
                   for name, value in os.environ.items()}
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


def _spec_error(found: Sequence[dict[str, Any]], printed: str, name: str) -> SpecError:
    texts = _findings(printed)
    if len(texts) != len(found):
        texts = [""] * len(found)
    return SpecError(printed.strip(), [
        Diagnostic(name if one["file"] == _STDIN else one["file"], one["line"], one["column"],
                   one["code"], one["severity"], one["message"], text)
        for one, text in zip(found, texts)])


def _error(process: _Ended, printed: str, name: str) -> Error:
    """The error of an attnc that failed for another reason than a spec with errors."""
    if process.returncode < 0:
        return CompilerError(f"attnc was ended by signal {-process.returncode}", [printed.strip()])
    try:
        error = json.loads(process.stdout)["error"]
    except (ValueError, KeyError):  # text was asked for, or the command line was refused
        status = _STATUS_OF_EXIT.get(process.returncode, "internal")
        return error_of(status, printed.strip() or f"attnc failed with exit code {process.returncode}")
    return error_of(error["code"], error["message"].replace(_STDIN, name), error.get("notes", ()))
