"""From what mods return to the clauses of a spec."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Sequence

from attn.arguments import extent
from attn.errors import ArgumentError, TraceError
from attn.tracing import writing
from attn.tracing.captures import Capture, type_name
from attn.tracing.expressions import INT, REAL, Graph, Node, is_minus_infinity, walk
from attn.tracing.names import identifier

_MOST_VALUES_READ = 1_000_000  # of a tensor, for facts


@dataclass(frozen=True)
class Clauses:
    """Clauses of a spec that mods do not say, and its name: None if that is made of those of the mods."""

    dtype: Any = "bf16"  # or the type itself, torch.bfloat16
    layout: str = "bhsd"
    scale: float | None = None
    outputs: Sequence[str] = ("o",)
    dropout: float = 0.0
    name: str | None = None
    deterministic: bool = False

    def before(self, sizes: Mapping[str, int]) -> str:
        """The text of those before the declarations of tensors."""
        found = {"dims": writing.dims(sizes), "dtype": type_name(self.dtype), "layout": self.layout}
        return "".join(writing.clause(keyword, body) for keyword, body in found.items())

    def after(self) -> str:
        """The text of those after the score and the masks."""
        text = writing.clause("dropout", repr(float(self.dropout))) if self.dropout else ""
        text += writing.clause("outputs", ", ".join(self.outputs))
        return text + (writing.clause("deterministic") if self.deterministic else "")

    def title(self, *mods: Callable[..., Any] | None) -> str:
        """The name of the attention."""
        if self.name is not None:
            return identifier(self.name, "traced")
        names = []
        for mod in mods:
            while mod is not None and hasattr(mod, "func"):  # functools.partial
                mod = mod.func
            if mod is not None:
                names.append(identifier(getattr(mod, "__name__", type(mod).__name__), ""))
        return identifier("_".join(filter(None, names)), "traced")


def without_hidden(graph: Graph, score: Node, masks: list[Node]) -> tuple[Node, list[Node]]:
    """A score `where(visible, x, -inf)` is the score x and a mask: blocks can then be skipped."""
    while score.op == "where":
        test, yes, no = score.args
        if is_minus_infinity(no):
            visible, rest = test, yes
        elif is_minus_infinity(yes):
            visible, rest = graph.negation(test), no
        else:
            break
        if any(node.is_var("score") for node in walk([visible])):
            break
        score, masks = rest, [visible, *masks]
    return score, masks


class Reads:
    """Which captured tensors are read, where, and with which indexes."""

    def __init__(self, score: Node, masks: list[Node]):
        self._nodes = walk([score, *masks])
        self._loads: dict[int, list[Node]] = {}
        for node in self._nodes:
            if node.op == "load":
                self._loads.setdefault(id(node.value), []).append(node)
        self._fixed = {id(load.value) for load in walk([*masks, *self._indexes()]) if load.op == "load"}
        self._scored = {id(load.value) for load in _in_value(score)}

    def _indexes(self) -> list[Node]:
        return [index for loads in self._loads.values() for load in loads for index in load.args]

    @property
    def captures(self) -> list[Capture]:
        """The tensors that are read, in the order in which the text needs them."""
        return [loads[0].value for loads in self._loads.values()]

    def has_gradient(self, capture: Capture) -> bool:
        """Whether it is a term of the score."""
        return id(capture) in self._scored

    def decides(self, capture: Capture) -> bool:
        """Whether a mask or an index depends on it."""
        return id(capture) in self._fixed

    def is_document(self, capture: Capture) -> bool:
        """Whether two of its elements are compared for equality."""
        if capture.kind != INT or len(capture.shape) > 2:
            return False
        return any(node.op == "==" and all(arg.op == "load" and arg.value is capture for arg in node.args)
                   for node in self._nodes)

    def extents(self, capture: Capture, sizes: Mapping[str, int]) -> list[str]:
        """The shape, by names of dimensions where the indexes say so."""
        found = []
        for axis, size in enumerate(capture.shape):
            indexes = {_index_name(load.args[axis], sizes) for load in self._loads[id(capture)]}
            name = {("b",): "B", ("h",): "Hq", ("key head",): "Hkv", ("q_idx",): "Sq", ("kv_idx",): "Skv",
                    ("kv_idx", "q_idx"): "Skv"}.get(tuple(sorted(indexes)))
            if name is None and len(indexes) == 1:
                name = _in_blocks(next(iter(indexes)))
            found.append(name if name and extent(name, sizes) == size else str(size))
        return found


def _index_name(index: Node, sizes: Mapping[str, int]) -> str:
    """The variable that an index is, "key head" for `h // (Hq / Hkv)`, "q_idx // 128", or ""."""
    if index.op == "var":
        return str(index.value)
    if index.op != "//" or index.args[0].op != "var" or index.args[1].op != "const":
        return ""
    variable, divisor = index.args[0].value, index.args[1].value
    if variable == "h":
        return "key head" if divisor * sizes["Hkv"] == sizes["Hq"] else ""
    return f"{variable} // {divisor}" if divisor > 1 else ""


_LENGTHS = {"q_idx": "Sq", "kv_idx": "Skv"}


def _in_blocks(index: str) -> str | None:
    """How many blocks there are of the rows or keys that an index counts: "(Skv + 127) // 128"."""
    variable, _, divisor = index.partition(" // ")
    if not divisor or variable not in _LENGTHS:
        return None
    return f"({_LENGTHS[variable]} + {int(divisor) - 1}) // {divisor}"


def _in_value(score: Node) -> list[Node]:
    """The loads on which the score depends by its value, and not by a condition or an index."""
    found, stack, seen = [], [score], set()
    while stack:
        node = stack.pop()
        if id(node) in seen or node.type != REAL:
            continue
        seen.add(id(node))
        if node.op == "load":
            found.append(node)
        else:
            stack.extend(node.args[1:] if node.op == "where" else node.args)
    return found


def learned_of(captures: list[Capture], reads: Reads, learn: bool | Iterable[str] | None) -> set[str]:
    """The names of the captured tensors that get a gradient, as `attn.trace` is told by `learn`."""
    if learn is None:
        wanted = {capture.name for capture in captures if capture.needs_gradient}
    elif isinstance(learn, bool):
        wanted = {capture.name for capture in captures if learn and capture.kind == REAL}
    else:
        wanted = set(learn)
        for name in sorted(wanted):
            capture = next((one for one in captures if one.name == name), None)
            if capture is None or capture.kind != REAL or not reads.has_gradient(capture):
                raise ArgumentError(f"learn: the score has no floating-point tensor `{name}`", [
                    "it has " + (", ".join(f"`{one.name}`" for one in captures) or "none")])
    learned = {capture.name for capture in captures
               if capture.name in wanted and reads.has_gradient(capture)}
    for capture in captures:
        if capture.name in learned and reads.decides(capture):
            raise TraceError(f"`{capture.name}` gets a gradient as a term of the score, and a mask or an "
                             "index depends on it, which has none",
                             ["use `.detach()` of it for the mask or index, made outside of the mod"])
    return learned


def is_sorted(values: Any) -> bool:
    """Whether elements do not decrease along the last axis; False if that is not cheap to know."""
    size = 1
    for length in values.shape:
        size *= length
    on_cpu = str(getattr(values, "device", "cpu")) == "cpu"
    if (not on_cpu and size > _MOST_VALUES_READ) or "Fake" in type(values).__name__:
        return False
    return bool((values[..., 1:] >= values[..., :-1]).all())
