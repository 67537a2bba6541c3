"""Specifications of attentions, from text, files, JSON trees and the standard specs."""
from __future__ import annotations

import functools
import json
import os
import pathlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, AbstractSet, Any, Collection, Iterator, Mapping, NamedTuple, Sequence

from . import _attnc, _find
from .errors import ArgumentError, CompilerError, SpecError

if TYPE_CHECKING:
    from .tracing.origins import Origin

_DIMS = ("B", "Hq", "Hkv", "Sq", "Skv", "Dqk", "Dv")


@dataclass(frozen=True)
class TensorDeclaration:
    """A captured tensor that a spec declares. `shape` has sizes, names of dimensions, and expressions as
    trees of the JSON form."""

    name: str
    dtype: str
    shape: tuple[Any, ...]
    learned: bool


class Quantized(NamedTuple):
    """What a `quantize` clause says: the types of o, of do, and of dq, dk and dv ("e4m3"), and the scales
    that are inputs, with their defaults (None: it depends on sizes, which calls may change)."""

    o: str
    do: str
    gradients: str
    scales: dict[str, float | None]


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
    def of(source: Any) -> Spec:
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

    def answer(self, command: str, *arguments: str) -> Any:
        """What `attnc COMMAND - ARGUMENTS --format json` says about this spec. Errors of a spec that functions
        were traced to are TraceErrors, which name a line of the functions."""
        folder = str(pathlib.Path(self.filename).resolve().parent) if self.filename else None
        try:
            return _attnc.run([command, "-", *arguments], text=self.text,
                              name=self.filename or "<spec>", folder=folder)
        except SpecError as error:
            if not self.traced:
                raise
            from .tracing.origins import at_python

            raise at_python(error, self.text, self.origins) from None

    def print(self, command: str, bindings: Mapping[str, Any], *arguments: str) -> str:
        """What `attnc COMMAND - ARGUMENTS` prints about this spec."""
        folder = str(pathlib.Path(self.filename).resolve().parent) if self.filename else None
        return _attnc.run_text([command, "-", *bind_arguments(bindings), *arguments], text=self.text,
                               name=self.filename or "<spec>", folder=folder)

    def check(self, bindings: Mapping[str, Any], deny_warnings: bool = False) -> None:
        """Raises SpecError if the spec has errors with these sizes and parameters."""
        self.answer("check", *bind_arguments(bindings), *deny_arguments(deny_warnings))

    def quantized(self, bindings: Mapping[str, Any]) -> Quantized | None:
        """How tensors are scaled; None if the spec is not of 8-bit floats. Do not change what it returns: it is
        shared."""
        if not any(True for _ in self._clauses("quantize")):
            return None
        return _quantized(self.text, self.filename, tuple(bind_arguments(bindings)))

    @property
    def has_scales_of_blocks(self) -> bool:
        """Whether the spec has a scale for each block of 8-bit floats (MXFP8)."""
        return any(clause["quantize"] == "mxfp8" for clause in self._clauses("quantize"))

    @property
    def tree(self) -> dict[str, Any]:
        """The JSON form. Do not change it: it is shared."""
        return _tree(self.text, self.filename)

    @property
    def dsl(self) -> str:
        """The text of the spec in the DSL, whatever it was made of."""
        return _dsl(self.text, self.filename) if self.text.lstrip().startswith("{") else self.text

    def standing_alone(self) -> Spec:
        """The spec with the functions that it imports and calls written into it, as the files say them now:
        later changes of them change nothing. Raises SpecError if they cannot be read."""
        if "import" not in self.text or not any("import" in item for item in self.tree.get("preamble", ())):
            return self
        form = "json" if self.text.lstrip().startswith("{") else "dsl"
        folder = str(pathlib.Path(self.filename).resolve().parent) if self.filename else None
        text = _attnc.run_text(["convert", "-", "--to", form, "--inline-imports"], text=self.text,
                               name=self.filename or "<spec>", folder=folder)
        return Spec(text)  # lines of the text are not those of the file

    def with_clauses(self, clauses: Sequence[dict[str, Any]], keywords: Collection[str] | None = None) -> Spec:
        """The spec with these clauses of the JSON form instead of those with the same `keywords` (by default,
        the keys of the new ones). As text, which diagnostics quote, if it was text."""
        removed = {key for clause in clauses for key in clause} if keywords is None else keywords
        # A declaration also has a dtype; its name is first.
        kept = [clause for clause in self.tree["clauses"] if _keyword(clause) not in removed]
        made = replace(self, text=json.dumps({**self.tree, "clauses": [*kept, *clauses]}))
        return made if self.text.lstrip().startswith("{") else replace(made, text=made.dsl)

    @property
    def name(self) -> str:
        """The name of the attention."""
        return self.tree["attention"]

    @property
    def parameters(self) -> dict[str, Any]:
        """The spec's parameters, constants of a plan, with their defaults as trees of the JSON form."""
        return dict(self.tree.get("parameters", {}))

    @property
    def params(self) -> tuple[str, ...]:
        """Names of the numbers that are bound at a call."""
        return tuple(clause["param"] for clause in self._clauses("param"))

    @property
    def dims(self) -> dict[str, Any]:
        """The size of each dimension: a number, a list of sizes, another dimension's name, an expression
        as a tree, or None if it is open. Dimensions have the names B, Hq, Hkv, Sq, Skv, Dqk and Dv: `D` is
        both of the last, and Hkv, Skv and Dv that are not declared equal Hq, Sq and Dqk."""
        written: dict[str, Any] = {}
        for clause in self._clauses("dims"):
            written.update(clause["dims"])
        dims = dict.fromkeys(_DIMS)
        dims.update({"Hkv": "Hq", "Skv": "Sq", "Dv": "Dqk"})
        if "D" in written:
            both = written.pop("D")
            dims.update({"Dqk": both, "Dv": both})
        dims.update(written)
        return dims

    def sizes(self, bindings: Mapping[str, Any]) -> dict[str, Any]:
        """`dims` with sizes that replace the spec's, where names of other dimensions are followed: numbers,
        lists of sizes, trees of expressions, or None for what is open."""
        dims = {**self.dims, **{dim: size for dim, size in bindings.items() if dim in _DIMS}}
        if "D" in bindings:
            dims.update({"Dqk": bindings["D"], "Dv": bindings["D"]})

        def followed(size: Any, steps: int) -> Any:
            named = isinstance(size, str) and size in dims and steps > 0
            return followed(dims[size], steps - 1) if named else size

        return {dim: followed(size, len(_DIMS)) for dim, size in dims.items()}

    def open_dims(self, bindings: Mapping[str, Any]) -> list[str]:
        """The dimensions without a size, of those that do not follow from another: D for both Dqk and Dv."""
        sizes, dims = self.sizes(bindings), self.dims
        found = [dim for dim in _DIMS if sizes[dim] is None and not isinstance(dims[dim], str)]
        if "Dqk" in found and sizes["Dv"] is None:
            found = ["D" if dim == "Dqk" else dim for dim in found if dim != "Dv"]
        return found

    @property
    def dtype(self) -> str:
        """The dtype of q, k, v and o."""
        return next((clause["dtype"] for clause in self._clauses("dtype")), "bf16")

    @property
    def tensors(self) -> tuple[TensorDeclaration, ...]:
        """The captured tensors, in the order of their declarations."""
        return tuple(
            TensorDeclaration(clause.get("tensor") or clause["learn"], clause["dtype"],
                              tuple(clause.get("shape", ())), "learn" in clause)
            for clause in self.tree["clauses"] if _keyword(clause) in ("tensor", "learn"))

    @property
    def learned(self) -> tuple[str, ...]:
        """Names of the tensors that have a gradient."""
        return tuple(tensor.name for tensor in self.tensors if tensor.learned)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs in the order of the spec: "o" and "lse"."""
        return tuple(next((clause["outputs"] for clause in self._clauses("outputs")), ["o"]))

    def could_learn(self, name: str) -> bool:
        """Whether a tensor would have a gradient if `learn` declared it: the score or the sink reads it other
        than in conditions and integers, and no mask does."""
        return _could_learn(self.text, self.filename, name)

    @property
    def gradients(self) -> tuple[str, ...]:
        """What has a gradient in a training pair: those of the `grad` clause, else q, k, v and all
        learned tensors."""
        for clause in self._clauses("grad"):
            return tuple(clause["grad"])
        return ("q", "k", "v", *self.learned)

    @property
    def lengths(self) -> tuple[str, ...]:
        """The inputs of the `lengths` clause, in this order: "lengths_q", "lengths_kv"."""
        axes = {axis for clause in self._clauses("lengths") for axis in clause["lengths"]}
        if any(clause["layout"] == "thd" for clause in self._clauses("layout")):
            axes = {"q", "kv"}
        return tuple(f"lengths_{axis}" for axis in ("q", "kv") if axis in axes)

    @property
    def has_random_dropout(self) -> bool:
        """Whether `seed` and `offset` are inputs."""
        return any("keep" not in clause for clause in self._clauses("dropout"))

    @property
    def is_deterministic(self) -> bool:
        """Whether the spec asks for gradients that are bitwise the same in every run."""
        return any(True for _ in self._clauses("deterministic"))

    @property
    def has_grad(self) -> bool:
        """Whether the spec has a `grad` clause, so that it is compiled as a training pair."""
        return any(True for _ in self._clauses("grad"))

    def _clauses(self, keyword: str) -> Iterator[dict[str, Any]]:
        return (clause for clause in self.tree["clauses"] if _keyword(clause) == keyword)


def _keyword(clause: Mapping[str, Any]) -> str:
    """What a clause of the JSON form is: declarations have their dtype beside the name."""
    for keyword in ("tensor", "learn", "param"):
        if keyword in clause:
            return keyword
    return next(key for key in clause if key != "above")


def names() -> list[str]:
    """Names of the standard specs, which `Spec.of` and `attn.compile` accept."""
    return sorted(path.name.removesuffix(".attn") for path in _find.specs_folder().glob("*.attn"))


def bind_arguments(bindings: Mapping[str, Any]) -> list[str]:
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
def _quantized(text: str, filename: str | None, bindings: tuple[str, ...]) -> Quantized:
    spec = Spec(text, filename)
    found = Quantized(**spec.answer("check", *bindings)["specs"][0]["quantize"])
    written = next(spec._clauses("quantize")).get("with", {})
    vary = {name for name, value in written.items() if name in found.scales and not _is_constant(value)}
    return found._replace(scales={**found.scales, **dict.fromkeys(vary)})


def _is_constant(tree: Any) -> bool:
    """Whether an expression of the JSON form reads no name."""
    if isinstance(tree, Mapping):
        return all(_is_constant(operand) for operand in tree.get("args", (None,)))
    return isinstance(tree, (int, float))


@functools.lru_cache(maxsize=256)
def _could_learn(text: str, filename: str | None, name: str) -> bool:
    tree = Spec(text, filename).tree
    values = [clause.get(keyword) for clause in tree["clauses"] for keyword in ("score", "sink")]
    if not _reads(values, _readers(tree["clauses"], {name})):
        return False
    clauses = [{"learn" if keyword == "tensor" else keyword: value for keyword, value in clause.items()}
               if clause.get("tensor") == name else clause for clause in tree["clauses"]]
    try:
        Spec(json.dumps({**tree, "clauses": clauses}), filename).print("check", {})
    except (SpecError, CompilerError):
        return False
    return True


_STEPS = frozenset(("<", "<=", ">", ">=", "==", "!=", "&&", "||", "!", "//", "int", "floor", "ceil"))


def _readers(clauses: Collection[Mapping[str, Any]], names: AbstractSet[str]) -> AbstractSet[str]:
    """These names, and those of the lets and functions of a spec whose values read them."""
    found, count = set(names), -1
    while len(found) > count:  # a function may call one below it
        count = len(found)
        for clause in clauses:
            if ("let" in clause or "fn" in clause) and _defines_reader(clause, found):
                found.add(clause.get("let") or clause["fn"])
    return found


def _defines_reader(clause: Mapping[str, Any], names: AbstractSet[str]) -> bool:
    lets = clause.get("lets", ())
    hidden = {*clause.get("parameters", ()), *(let["let"] for let in lets)}
    return _reads(clause["value"], _readers(lets, names - hidden))


def _reads(tree: Any, names: AbstractSet[str]) -> bool:
    """Whether an expression reads one of these outside of indexes, conditions and other step functions."""
    if isinstance(tree, list):
        return any(_reads(each, names) for each in tree)
    if not isinstance(tree, Mapping):
        return tree in names
    if "index" in tree:
        return tree["index"] in names
    if "compare" in tree or tree.get("op") in _STEPS or tree.get("call") in _STEPS:
        return False
    args = tree.get("args", [])
    return tree.get("call") in names or _reads(
        [tree.get("value"), *(args[1:] if tree.get("call") == "where" else args)], names)


@functools.lru_cache(maxsize=256)
def _tree(text: str, filename: str | None) -> dict[str, Any]:
    return json.loads(_converted(Spec(text, filename), "json"))


@functools.lru_cache(maxsize=256)
def _dsl(text: str, filename: str | None) -> str:
    return _converted(Spec(text, filename), "dsl")


def _converted(spec: Spec, form: str) -> str:
    try:
        return _attnc.run_text(["convert", "-", "--to", form], text=spec.text,
                               name=spec.filename or "<spec>")
    except SpecError:
        spec.check({})  # raises the same errors with their places
        raise
