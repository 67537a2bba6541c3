"""Specifications of attentions, from text, files, JSON trees and the standard specs."""
from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Iterator, Mapping, NamedTuple

from . import _attnc, _find, hints
from .errors import ArgumentError, CompilerError, SpecError
from .types import Json

if TYPE_CHECKING:
    from .tracing.origins import Origin


class Input(NamedTuple):
    """A tensor that calls take beside q, k and v: captured, of lengths, or what locates rows. `dims` are names of
    dimensions, numbers and expressions, as texts. `differentiable`: whether it would have a gradient if `learn`
    declared it. `optional`: whether calls may leave it out. `limited`: whether it has declared how long a run of
    equal elements may be."""

    name: str
    dtype: str
    dims: tuple[str, ...]
    learned: bool
    differentiable: bool
    optional: bool
    limited: bool


class Quantized(NamedTuple):
    """What a `quantize` clause says: how scales are given ("per_tensor", "mxfp8"); the types of o, of do, and of dq,
    dk and dv ("e4m3"); and the scales that are inputs, with their defaults (None: it depends on sizes, which calls
    may change)."""

    by: str
    o: str
    do: str
    gradients: str
    scales: dict[str, float | None]


class Description:
    """What `attnc describe` says of a spec with sizes and parameters (docs/cli.md). Do not change it: it is shared.

    sizes      of each dimension: a number, a list of those of several plans, or None
    open       the dimensions that need a size
    inputs     by name, what calls take beside q, k and v
    outputs    in the order of the spec; `saved`: those that a backward reads
    gradients  of what a training pair has gradients; `amax`: what its backward has besides, f32 [1]
    tables     of k and v, if they have pages: the names of their page tables
    packed     those of q, k and v that are packed sequences
    bound      the tensors whose strides are those of the bound tensor (`strides = bound`)
    facts      the rest: "packed", "sink", "group", ..
    quantized  None for other than 8-bit attention
    held       whether v is the first columns of k (`values`), and calls take none
    gathers    whether rows see the keys that a tensor lists (`gather`)
    rows       the format of rows of keys that have several types, or None
    cache      of keys and values of 8 bits beside queries of 16: their types, by "k" and "v"; else empty"""

    def __init__(self, said: Mapping[str, Any]):
        self.name: str = said["name"]
        self.dtype: str = said["dtype"]
        self.parameters = tuple(said["parameters"])
        self.params = tuple(param["name"] for param in said["params"])
        self.sizes: dict[str, Any] = said["dims"]
        self.open: list[str] = said["open"]
        self.outputs, self.saved = tuple(said["outputs"]), tuple(said["saved"])
        self.gradients = tuple(said["gradients"])
        self.facts: dict[str, Any] = said["facts"]
        self.quantized = Quantized(**said["quantize"]) if "quantize" in said else None
        self.held: bool = self.facts.get("values_of_keys", False)
        self.gathers: bool = self.facts.get("gather", False)
        self.rows: str | None = said["layouts"]["k"].get("rows")
        # Whether each key has scales of its own, stored as rows of k and v are.
        self.token_scales: bool = said["cache"]["of"].startswith("token") if "cache" in said else False
        self.cache: dict[str, str] = {name: said["cache"][name] for name in ("k", "v")} if "cache" in said else {}
        self.inputs = {one["name"]: _input(one) for one in said["tensors"] if one["role"] in ("captured", "control")}
        self.learned = tuple(name for name, one in self.inputs.items() if one.learned)
        self.amax = tuple(one["name"] for one in said["tensors"] if one.get("of_backward"))
        self.tables = {name: layout["table"] for name, layout in said["layouts"].items() if "table" in layout}
        self.packed = tuple(name for name in ("q", "k", "v") if said["layouts"][name]["kind"] == "thd")
        self.bound = frozenset(one["name"] for one in said["tensors"] if one.get("strides") == "bound")

    @property
    def scales(self) -> dict[str, float | None]:
        """The scales that calls of 8-bit attention take, with their defaults."""
        return {} if self.quantized is None else self.quantized.scales

    @property
    def located(self) -> bool:
        """Whether other tensors say where rows are: packed sequences, or pages."""
        return bool(self.packed or self.tables)


def _input(said: Mapping[str, Any]) -> Input:
    return Input(said["name"], said["dtype"], tuple(said["dims"]), said.get("learned", False),
                 said.get("differentiable", False), said.get("optional", False), "longest_run" in said)


@dataclass(frozen=True)
class Spec:
    """One spec: its text (DSL, or the JSON form if it begins with "{"), the file it came from, which
    diagnostics name and in whose folder imports are searched for, and whether functions were traced to it,
    with their lines. Immutable; for any number of threads."""

    text: str
    filename: str | None = None
    traced: bool = False
    origins: tuple[Origin, ...] = ()

    @staticmethod
    def of(source: object) -> Spec:
        """A spec from any of: a Spec; a path, str or PathLike, of a .attn or .attn.json file; the name of
        a standard spec ("gemma2_local"); the text of a spec; a dict, the JSON form.

        A name that ends in .attn and is no file is looked up in the standard specs. Raises ArgumentError
        if it is none of these, CompilerError if the file cannot be read."""
        if isinstance(source, Spec):
            return source
        if isinstance(source, Mapping):
            return Spec(json.dumps(source))
        if isinstance(source, os.PathLike):
            return _read(os.fspath(source))
        if not isinstance(source, str):
            raise ArgumentError(
                f"a spec cannot be made of {type(source).__name__}",
                ["give a path, the text of a spec, its JSON form as a dict, or the name of one of "
                 "attn.specs.names()"])
        if "{" in source or "\n" in source:
            return Spec(source)
        return _named(source)

    def answer(self, command: str, *arguments: str) -> Json:
        """What `attnc COMMAND - ARGUMENTS --format json` says about this spec. Errors of a spec that functions
        were traced to are of their lines of Python."""
        with self._at_python():
            return _attnc.run([command, "-", *arguments], **self._input)

    def print(self, command: str, bindings: Mapping[str, object], *arguments: str) -> str:
        """What `attnc COMMAND - ARGUMENTS` prints about this spec."""
        return _attnc.run_text([command, "-", *bind_arguments(bindings), *arguments], **self._input)

    @property
    def _input(self) -> dict[str, Any]:
        folder = str(pathlib.Path(self.filename).resolve().parent) if self.filename else None
        return {"text": self.text, "name": self.filename or "<spec>", "folder": folder}

    @contextlib.contextmanager
    def _at_python(self) -> Iterator[None]:
        try:
            yield
        except SpecError as error:
            if not self.origins:
                raise
            from .tracing.origins import at_python

            raise at_python(error, self.text, self.origins) from None

    def check(self, bindings: Mapping[str, object], deny_warnings: bool = False) -> Description:
        """What the spec is with these sizes and parameters. Raises SpecError if it has errors, ArgumentError if
        it has no dimension or parameter of such a name; issues its warnings as SpecWarning."""
        said, printed = self._ask(bindings, *deny_arguments(deny_warnings))
        _attnc.warn(printed)
        return said

    def described(self, bindings: Mapping[str, object] | None = None) -> Description:
        """The same without warnings."""
        return self._ask(bindings or {})[0]

    def _ask(self, bindings: Mapping[str, object], *options: str) -> tuple[Description, str]:
        # What is imported may change.
        ask = _described.__wrapped__ if _IMPORTS.search(self.text) else _described
        try:
            with self._at_python():
                return ask(self, (*bind_arguments(bindings), *options))
        except SpecError as error:
            if not any(found.code == _UNKNOWN_BINDING for found in error.diagnostics):
                raise
            raise self._unknown_name(bindings) or error from None

    def _unknown_name(self, bindings: Mapping[str, object]) -> ArgumentError | None:
        said = self.described()
        known = [*_SIZES, *said.parameters]
        for name in bindings:
            if name in known:
                continue
            notes = [f"it has {', '.join(known)}"]
            if name in said.params or name in said.inputs:
                notes = [f"`{name}` is an input: give it at each call"]
            return ArgumentError(f"`{said.name}` has no dimension or parameter `{name}`",
                                 [*hints.of_argument(name), *notes])
        return None

    @property
    def tree(self) -> dict[str, Json]:
        """The JSON form."""
        found: dict[str, Any] = json.loads(_converted(self, "--to", "json"))
        return found

    @property
    def dsl(self) -> str:
        """The text of the spec in the DSL, whatever it was made of."""
        return _converted(self, "--to", "dsl") if self.text.lstrip().startswith("{") else self.text

    def standing_alone(self) -> Spec:
        """The spec with the functions that it imports and calls written into it, as the files say them now:
        later changes of them change nothing. Raises SpecError if they cannot be read."""
        if not _IMPORTS.search(self.text):
            return self
        # Lines of the text are not those of the file.
        return Spec(self.print("convert", {}, "--to", self._form, "--inline-imports"))

    def edited(self, *options: str) -> Spec:
        """The spec with the clauses that these options of attnc give, such as "--dtype", "f16"."""
        return replace(self, text=_converted(self, "--to", self._form, *options)) if options else self

    @property
    def _form(self) -> str:
        return "json" if self.text.lstrip().startswith("{") else "dsl"


_SIZES = ("B", "Hq", "Hkv", "Sq", "Skv", "D", "Dqk", "Dv")
_IMPORTS = re.compile(r'\bimport\s*"|"import"\s*:')
_UNKNOWN_BINDING = "E0601"


def names() -> list[str]:
    """Names of the standard specs, which `Spec.of` and `attn.compile` accept."""
    return sorted(path.name.removesuffix(".attn") for path in _find.specs_folder().glob("*.attn"))


def bind_arguments(bindings: Mapping[str, object]) -> list[str]:
    """The arguments of attnc that set sizes and parameters. A list of sizes gives a plan for each."""
    arguments = []
    for name, value in bindings.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        arguments += ["--bind", f"{name}={','.join(_number(name, one) for one in values)}"]
    return arguments


def deny_arguments(deny_warnings: bool) -> list[str]:
    """The arguments of attnc that make warnings errors, if `deny_warnings`."""
    return ["--deny", "warnings"] if deny_warnings else []


def _number(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if hasattr(value, "__index__"):
        return str(value.__index__())
    if hasattr(value, "__float__"):
        return repr(float(value))
    raise ArgumentError(f"{name} must be a number, not {type(value).__name__}")


def _named(name: str) -> Spec:
    if os.path.isfile(name):
        return _read(name)
    standard = _find.specs_folder() / (os.path.basename(name).removesuffix(".attn") + ".attn")
    if os.path.dirname(name) == "" and not name.endswith(".json") and standard.is_file():
        return _read(str(standard))
    if name.endswith((".attn", ".json")):
        raise CompilerError(f"{name}: no such file, and no standard spec of this name",
                            ["attn.specs.names() lists the standard specs"])
    raise ArgumentError(f"`{name}` is neither a file, nor the text of a spec, nor a standard spec",
                        [*_similar(name), "attn.specs.names() lists the standard specs"])


def _similar(name: str) -> list[str]:
    import difflib

    close = difflib.get_close_matches(name, names(), 1)
    return [f"did you mean `{close[0]}`?"] if close else []


def _read(path: str) -> Spec:
    try:
        with open(path, encoding="utf-8") as file:
            return Spec(file.read(), path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise CompilerError(f"{path} cannot be read: {reason}") from error


@functools.lru_cache(maxsize=256)
def _described(spec: Spec, arguments: tuple[str, ...]) -> tuple[Description, str]:
    said, printed = _attnc.ask(["describe", "-", *arguments], **spec._input)
    return Description(said), printed


@functools.lru_cache(maxsize=256)
def _converted(spec: Spec, *options: str) -> str:
    try:
        return spec.print("convert", {}, *options)
    except SpecError:
        spec.check({})  # raises the same errors with their places
        raise
