"""Compiling specs into the contents of plan files, and writing such files."""
from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import sys
import tempfile
from typing import Any, Iterator, Mapping, Sequence

from . import _attnc, _find, hints
from .errors import ArgumentError, CompilerError
from .reference import input_argument
from .specs import Description, Spec, bind_arguments, deny_arguments

ENGINES = ("auto", "cudnn", "native", "unfused")
DIRECTIONS = ("fwd", "bwd", "both")


def targets() -> list[str]:
    """Names of the GPUs that plans can be compiled for. Any machine can compile for each of them."""
    return [target["name"] for target in _attnc.run(["target", "list"])["targets"]]


@functools.lru_cache(maxsize=1)
def local_gpu() -> dict[str, Any] | None:
    """The GPU of this machine, {"name", "sm", ..}, or None. It is looked for once."""
    device = _attnc.run(["version"])["device"]
    return device if device["found"] else None


def build(spec: Spec, bindings: Mapping[str, Any], target: str = "native", *, engine: str | None = None,
          direction: str | None = None, cache: bool = True, deny_warnings: bool = False,
          edits: Sequence[str] = ()) -> bytes:
    """Compiles a spec and returns the contents of a plan file.

    `edits` are options that replace clauses of the spec, such as "--dtype", "f16"; `bindings` are sizes and
    spec parameters, `target` a name of `targets()`, "native" for the local GPU, or a path of a JSON file. With
    `cache`, plans come from and go to the folder of `attnc cache`, which processes share. Raises SpecError,
    UnsupportedError, or what attnc reports."""
    check_choices(engine, direction)
    options = [*bind_arguments(bindings), *edits, *deny_arguments(deny_warnings), "--target", _target(target),
               *_autotune()]
    if engine is not None:
        options += ["--engine", engine]
    if direction is not None:
        options += ["--direction", direction]
    return _compiled(options, cache, lambda arguments: spec.answer("compile", *arguments))


def _autotune() -> list[str]:
    """What attnc measures before it chooses: the engines that are predicted to take about as long, if PyTorch
    measures its own convolutions (torch.backends.cudnn.benchmark); else nothing."""
    torch = sys.modules.get("torch")
    return [] if torch is not None and torch.backends.cudnn.benchmark else ["--no-autotune"]


def build_ranks(spec: Spec, bindings: Mapping[str, Any], ranks: int, target: str = "native", *,
                engine: str | None = None, direction: str | None = None, cache: bool = True,
                values: Mapping[str, Any] | None = None) -> bytes:
    """The same for an attention that is divided among GPUs: the contents of the file of `attnc compile
    --ranks`. `values` are arrays of captured tensors by name, for which alone the file is then right."""
    check_choices(engine, direction)
    options = [*bind_arguments(bindings), "--ranks", str(ranks), "--target", _target(target)]
    options += ["--engine", engine] if engine is not None else []
    options += ["--direction", direction] if direction is not None else []
    with _inputs(values) as given:
        return _compiled([*options, *given], cache, lambda arguments: spec.answer("compile", *arguments))


def homes(spec: Spec, bindings: Mapping[str, Any], ranks: int,
          values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Where rows and keys would be, without compiling anything: of each rank, "rows" and "keys" as lists of
    [begin, end]."""
    with _inputs(values) as given:
        answer = spec.answer("explain", *bind_arguments(bindings), "--ranks", str(ranks), *given)
    found: list[dict[str, Any]] = answer["of_ranks"]
    return found


@contextlib.contextmanager
def _inputs(values: Mapping[str, Any] | None) -> Iterator[list[str]]:
    """Options with the values of captured tensors, in files that exist meanwhile."""
    with tempfile.TemporaryDirectory(prefix="attn-") as folder:
        yield [word for name, value in (values or {}).items()
               for word in ("--in", input_argument(folder, name, value))]


def recompile(contents: bytes, target: str = "native", cache: bool = True) -> bytes:
    """Compiles the programs of a plan file again, for this GPU and the cuDNN of this process."""
    with tempfile.TemporaryDirectory(prefix="attn-") as folder:
        old = pathlib.Path(folder) / "old.attnplan"
        old.write_bytes(contents)
        return _compiled(["--recompile", str(old), "--target", _target(target), *_autotune()], cache,
                         lambda arguments: _attnc.run(["compile", *arguments]))


def write(path: str | os.PathLike[str], contents: bytes) -> None:
    """Writes a file at once: nobody sees a part of it. Raises CompilerError if it cannot be written."""
    folder, name = os.path.split(os.path.abspath(os.fspath(path)))
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(contents)
            os.chmod(temporary, 0o644)
            os.replace(temporary, os.path.join(folder, name))
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise CompilerError(f"{os.fspath(path)} cannot be written: {error.strerror}") from error


def read(path: str | os.PathLike[str]) -> bytes:
    """The contents of a plan file. Raises CompilerError if it cannot be read."""
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise CompilerError(f"{os.fspath(path)} cannot be read: {error.strerror}") from error


def number(text: str) -> int | float:
    """A value of a manifest's bindings."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def check_choices(engine: str | None, direction: str | None) -> None:
    """Raises ArgumentError if there is no such engine or direction."""
    for name, value, choices in (("engine", engine, ENGINES), ("direction", direction, DIRECTIONS)):
        if value is not None and value not in choices:
            notes = hints.of_engine(value) if name == "engine" else []
            raise ArgumentError(f"{name} is {value!r}; it must be one of {', '.join(choices)}", notes)


def _compiled(options: list[str], cache: bool, run: Any) -> bytes:
    if cache:
        options = [*options, "--use-cache"]
    cudnn = _find.cudnn_folder()
    if cudnn is not None:
        options = [*options, "--cudnn", cudnn]
    with tempfile.TemporaryDirectory(prefix="attn-") as folder:
        plan = pathlib.Path(folder) / "new.attnplan"
        run([*options, "-o", str(plan)])
        return plan.read_bytes()


def _target(target: str | os.PathLike[str]) -> str:
    name = os.fspath(target)
    meant = hints.of_target(name) if name != "native" else []
    if meant:
        known = ", ".join(targets())
        raise ArgumentError(f"target is {name!r}; it must be one of {known}, or \"native\"", meant)
    return os.path.abspath(name) if name.endswith(".json") else name


def check_sizes(said: Description, what: str) -> None:
    """Raises ArgumentError if a dimension has no size, which `what` needs."""
    if said.open:
        example = ", ".join(f"{dim}=.." for dim in said.open)
        raise ArgumentError(f"`{said.name}` has no size for {', '.join(said.open)}, and {what} needs "
                            "all sizes", [f"give them: attn.compile(.., {example})"])
