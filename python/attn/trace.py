"""Specs from FlexAttention's functions.

A mod is an ordinary Python function of one score. It is called once, with values that record what is done
to them; what it returns is written as a spec. See docs/python.md.
"""
from __future__ import annotations

import contextlib
import random
import sys
from dataclasses import dataclass, field
from types import FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

from attn.errors import ArgumentError, TraceError
from attn.tracing import functions, origins, tables, writing
from attn.tracing.captures import Capture, Captures
from attn.tracing.expressions import BOOL, INT, REAL, Graph, Node, is_minus_infinity, walk
from attn.tracing.names import Names, identifier
from attn.tracing.recipes import Recipe, element, sources
from attn.tracing.places import is_library, of_exception, of_function, refusal, signature_error
from attn.tracing.rows import Row
from attn.tracing.tracer import Tracer
from attn.tracing.values import Value, has_values, tensors_in
from attn.tracing.watching import Watch

_INDEXES = ("b", "h", "q_idx", "kv_idx")
_MOST_VALUES_READ = 1_000_000  # of a tensor, for facts


@dataclass(frozen=True)
class Traced:
    """What a trace gives.

    `text` is a spec, as `attnc fmt` formats it. `tensors` has the captured tensors by their names in the
    spec, as the mod captured or computed them; one without dimensions is there with one, of size 1. `learned`
    are the names of those that get a gradient. `origins` are the lines of Python that index them.

    `recipes` say how to find the tensors again, and `steps` what the mods read, each with the key of what it
    found (attn/tracing/reads.py); None if that is not all on which the trace depends, and `opaque` says why.
    """

    text: str
    tensors: Mapping[str, Any]
    learned: tuple[str, ...]
    origins: tuple[origins.Origin, ...] = ()
    recipes: Mapping[str, Recipe] = field(repr=False, compare=False, default_factory=dict)
    steps: tuple[Any, ...] | None = field(repr=False, compare=False, default=None)
    opaque: str | None = field(repr=False, compare=False, default=None)


def trace(score_mod: Callable | None = None, mask_mod: Callable | None = None, *, B: int, Hq: int, Hkv: int,
          Sq: int, Skv: int, Dqk: int, Dv: int, dtype: str = "bf16", layout: str = "bhsd",
          scale: float | None = None, outputs: Sequence[str] = ("o",),
          learn: bool | Iterable[str] | None = None, dropout: float = 0.0, name: str | None = None,
          deterministic: bool = False, facts: bool = True) -> Traced:
    """The spec of `score_mod(score, b, h, q_idx, kv_idx)` and `mask_mod(b, h, q_idx, kv_idx)`.

    B, Hq, .. are the sizes of q, k and v. `learn` says which captured tensors get a gradient: None those
    that require one, True all of floating-point type, False none, or their names. With `facts`, tensors of
    documents are declared `monotone` if their values do not decrease now; their values are read for that.

    Raises TraceError, with the line of the mod, for what cannot be expressed. Several threads may trace at
    the same time.
    """
    sizes = {"B": B, "Hq": Hq, "Hkv": Hkv, "Sq": Sq, "Skv": Skv}
    sizes |= {"D": Dqk} if Dqk == Dv else {"Dqk": Dqk, "Dv": Dv}
    names = Names()
    tracer = Tracer(Graph(), Captures(names), sizes)
    watch = Watch(unwrapped(score_mod, mask_mod), tracer.rows.capture, tracer.rows.array)
    score = _traced_score(tracer, watch)
    masks = _traced_mask(tracer, watch)
    score, masks = _without_hidden(tracer.graph, score, masks)
    reads = _Reads(score, masks)
    captures = reads.captures
    if any(source.place is None for source in sources([capture.recipe for capture in captures])):
        watch.is_opaque("it reads a tensor of unknown origin")
    opaque = watch.opaque or tracer.opaque
    learned = _learned(captures, reads, learn)

    writer = writing.Writer()
    roots = [score, *(part for mask in masks for part in writing.conjuncts(mask))]
    lets = writing.name_parts(roots, tracer.local_names, names, writer)
    text = writing.clause("dims", writing.dims(sizes))
    text += writing.clause("dtype", dtype) + writing.clause("layout", layout)
    for capture in captures:
        known = ["monotone"] if facts and reads.is_document(capture) and _is_sorted(capture.value) else []
        text += writing.tensor_clause(capture, reads.extents(capture, sizes), capture.name in learned, known)
    if scale is not None:
        text += writing.clause("scale", repr(float(scale)))
    for let, value in lets:
        text += writing.clause("let", f"{let} = {value}")
    if not score.is_var("score"):
        text += writing.clause("score", writer.text(score))
    for mask in masks:
        text += writing.mask_clauses(mask, writer)
    if dropout:
        text += writing.clause("dropout", repr(float(dropout)))
    text += writing.clause("outputs", ", ".join(outputs))
    if deterministic:
        text += writing.clause("deterministic")
    written = {id(node) for node in walk(roots)}
    indexed = [each for each in tracer.indexed if id(each.node) in written]
    return Traced(f"attention {_title(name, score_mod, mask_mod)} {{\n{text}}}\n",
                  {capture.name: element(capture.value) for capture in captures},
                  tuple(capture.name for capture in captures if capture.name in learned),
                  origins.origins_of(indexed, writer.text, score_mod, mask_mod),
                  {capture.name: capture.recipe for capture in captures},
                  None if opaque else tuple(watch.steps), opaque)


def unwrapped(*mods: Any) -> tuple[Any, ...]:
    """The functions that torch.compile was given."""
    return tuple(mod.__dict__.get("_torchdynamo_orig_callable", mod) if isinstance(mod, FunctionType) else mod
                 for mod in mods)


def _title(name: str | None, *mods: Callable | None) -> str:
    if name is not None:
        return identifier(name, "traced")
    names = []
    for mod in mods:
        while hasattr(mod, "func"):  # functools.partial
            mod = mod.func
        if mod is not None:
            names.append(identifier(getattr(mod, "__name__", type(mod).__name__), ""))
    return identifier("_".join(filter(None, names)), "traced")


# --- calling a mod


def _traced_score(tracer: Tracer, watch: Watch) -> Node:
    score, mod = tracer.graph.var("score"), watch.mods[0]
    if mod is None:
        watch.mod(0)
        return score
    node = _result(tracer, watch, 0, "score_mod", ("score", *_INDEXES))
    if node.type == BOOL:
        raise refusal("a score_mod returns a number, this one returns a condition",
                      ["pass it as mask_mod, or write `torch.where(condition, score, -float('inf'))`"],
                      at=of_function(mod))
    return node


def _traced_mask(tracer: Tracer, watch: Watch) -> list[Node]:
    mod = watch.mods[1]
    if mod is None:
        watch.mod(1)
        return []
    node = _result(tracer, watch, 1, "mask_mod", _INDEXES)
    if node.type != BOOL:
        kind = "an integer" if node.type == INT else "a real number"
        raise refusal(f"a mask_mod returns a condition, this one returns {kind}",
                      ["write `x != 0`, or `.bool()` of a captured tensor"], at=of_function(mod))
    return [] if node.op == "const" and node.value else [node]


def _result(tracer: Tracer, watch: Watch, place: int, what: str, parameters: tuple[str, ...]) -> Node:
    """What the mod returns for one score."""
    mod = watch.mods[place]
    if not callable(mod):
        raise TraceError(f"a {what} is a function, not a `{type(mod).__name__}`")
    wrong = signature_error(mod, parameters, what)
    if wrong:
        raise wrong
    values = [tracer.wrap(tracer.graph.var(name)) for name in parameters]

    def run(copy: Callable[[], Callable]) -> Node:
        with _watching_torch(tracer, watch), _watching_calls(tracer, watch):
            return _returned(tracer, _called(copy(), values), mod, what)

    try:
        return run(lambda: watch.mod(place))
    except TraceError:
        try:
            found = run(lambda: mod)
        except TraceError:
            found = None
        if found is None:
            raise
        watch.is_opaque("it does not run with stand-ins of what it reads")
        return found


def _called(mod: Callable, values: list[Value]) -> Any:
    try:
        return mod(*values)
    except TraceError:
        raise
    except RecursionError as error:
        raise refusal("the mod's expression is nested too deeply", at=of_exception(error.__traceback__)) \
            from error
    except Exception as error:
        notes = ["a mod is called once, with stand-ins for score, b, h, q_idx and kv_idx"]
        if "infer dtype" in str(error):
            notes = ["a value of one score need not be made a tensor: compute with it"]
        raise refusal(f"the mod failed while it was traced: {type(error).__name__}: {error}", notes,
                      at=of_exception(error.__traceback__)) from error


def _returned(tracer: Tracer, result: Any, mod: Callable, what: str) -> Node:
    wanted = "a condition" if what == "mask_mod" else "a score"
    if result is None or isinstance(result, (bool, str, tuple, list, dict)):
        shown = repr(result) if result is None or isinstance(result, bool) else f"a {type(result).__name__}"
        raise refusal(f"a {what} returns {wanted}, this one returns {shown}", at=of_function(mod))
    if isinstance(result, Row) and len(result.shape) > 1:
        raise refusal(f"a {what} returns one value for each score; this tensor has "
                      f"{len(result.shape)} dimensions without index", at=of_function(mod))
    node = tracer.node(result)
    if node.size:
        raise refusal(f"a {what} returns one value for each score, this one returns {node.size}",
                      ["index the captured tensor, or reduce the row with `.any()` or `.sum()`"],
                      at=of_function(mod))
    return node


@contextlib.contextmanager
def _watching_calls(tracer: Tracer, watch: Watch) -> Iterator[None]:
    """Learns what the mod's variables are called, and sees what is called; not while a profiler runs, because
    there can be only one."""
    if sys.getprofile() is not None:
        watch.is_opaque("a profiler runs")
        yield
        return

    def at_event(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            watch.calls(frame)
        elif event == "c_call":
            if isinstance(getattr(arg, "__self__", None), random.Random):
                raise functions.random_error()
            watch.calls_builtin(frame, arg)
        elif event == "return" and not is_library(frame.f_code):
            for name, value in frame.f_locals.items():
                if type(value) is Value:
                    tracer.local_names[id(value.node)] = name

    sys.setprofile(at_event)
    try:
        yield
    finally:
        sys.setprofile(None)


def _watching_torch(tracer: Tracer, watch: Watch) -> contextlib.AbstractContextManager:
    """Follows captured tensors through torch's functions. Needs torch only if the mod has it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return contextlib.nullcontext()
    from torch.overrides import TorchFunctionMode

    outside = torch.is_grad_enabled()

    class Follow(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if has_values([*args, *kwargs.values()]):
                return Value.__torch_function__(func, types, args, kwargs)
            return _ordinary(tracer, watch, func, args, kwargs, outside)

    return Follow()


_METADATA = frozenset(
    "shape dtype ndim device requires_grad is_cuda is_cpu itemsize size dim numel ndimension "
    "__len__ nelement is_floating_point is_complex is_signed element_size get_device is_tensor "
    "result_type promote_types can_cast".split())


def _ordinary(tracer: Tracer, watch: Watch, func: Callable, args: Any, kwargs: Any, outside: bool) -> Any:
    """A function of torch that takes no traced value, within a mod. `outside`: whether autograd records
    around the mod, which makes no difference to what the mod means."""
    import torch

    name = functions.name_of(func)
    if name == "__get__":  # a property of tensors
        name = getattr(getattr(func, "__self__", None), "__name__", name)
        func = tables.property_of(name)
    elif isinstance(func, (MethodDescriptorType, WrapperDescriptorType)):
        func = tables.method(func.__name__)  # which torch.compile follows
    if functions.is_random(name):
        raise functions.random_error()
    given = tensors_in([*args, *kwargs.values()])
    if any(tracer.rows.known(tensor) is None for tensor in given):
        watch.is_opaque("it reads a tensor of unknown origin")
    if name in _METADATA:
        return func(*args, **kwargs)
    given = [row for row in map(tracer.rows.of, given) if row.is_captured]
    if given and name in functions.READS_VALUES:
        raise functions.reading_error(given[0].name)
    if given and functions.is_in_place(name):
        raise functions.in_place_error(name)
    records = torch.is_grad_enabled() == outside
    with torch.set_grad_enabled(records):
        result = func(*args, **kwargs)
    if not tensors_in([result]):
        watch.is_opaque(f"it asks for `{name}` of a tensor")
        return result
    with watch.pause():
        return tracer.rows.derive(func, name, args, kwargs, result, records)


# --- from results to clauses


def _without_hidden(graph: Graph, score: Node, masks: list[Node]) -> tuple[Node, list[Node]]:
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


class _Reads:
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
            found.append(name if name and sizes[name] == size else str(size))
        return found


def _index_name(index: Node, sizes: Mapping[str, int]) -> str:
    """The variable that an index is, "key head" for `h // (Hq / Hkv)`, or ""."""
    if index.op == "var":
        return index.value
    if index.op == "//" and index.args[0].is_var("h") and index.args[1].op == "const":
        return "key head" if index.args[1].value * sizes["Hkv"] == sizes["Hq"] else ""
    return ""


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


def _learned(captures: list[Capture], reads: _Reads, learn: bool | Iterable[str] | None) -> set[str]:
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


def _is_sorted(values: Any) -> bool:
    """Whether elements do not decrease along the last axis; False if that is not cheap to know."""
    size = 1
    for extent in values.shape:
        size *= extent
    on_cpu = str(getattr(values, "device", "cpu")) == "cpu"
    if (not on_cpu and size > _MOST_VALUES_READ) or "Fake" in type(values).__name__:
        return False
    return bool((values[..., 1:] >= values[..., :-1]).all())
