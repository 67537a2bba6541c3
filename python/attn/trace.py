"""Specs from FlexAttention's functions.

A mod is an ordinary Python function of one score. It is called once, with values that record what is done
to them; what it returns is written as a spec. See docs/python.md.
"""
from __future__ import annotations

import dataclasses
import functools
from types import FunctionType
from typing import Any, Callable, Iterable, Mapping

from attn.arguments import Sizes
from attn.tracing import origins, writing
from attn.tracing.calling import traced_mask, traced_score
from attn.tracing.captures import Captures
from attn.tracing.clauses import Clauses, Reads, is_sorted, learned_of, without_hidden
from attn.tracing.expressions import Graph, walk
from attn.tracing.jax_functions import Followed
from attn.tracing.names import Names
from attn.tracing.recipes import Recipe, element, sources
from attn.tracing.tracer import Tracer
from attn.tracing.watching import Watch
from attn.types import Mod


@dataclasses.dataclass(frozen=True)
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
    recipes: Mapping[str, Recipe] = dataclasses.field(repr=False, compare=False, default_factory=dict)
    steps: tuple[Any, ...] | None = dataclasses.field(repr=False, compare=False, default=None)
    opaque: str | None = dataclasses.field(repr=False, compare=False, default=None)


def trace(score_mod: Mod | None = None, mask_mod: Mod | None = None, *,
          learn: bool | Iterable[str] | None = None, facts: bool = True, **sizes_and_clauses: object) -> Traced:
    """The spec of `score_mod(score, b, h, q_idx, kv_idx)` and `mask_mod(b, h, q_idx, kv_idx)`.

    `sizes_and_clauses`: the sizes of q, k and v, all of them: B, Hq, Hkv, Sq, Skv, Dqk and Dv; and what is not
    as usual of dtype ("bf16"), layout ("bhsd"), scale (None: 1 / sqrt(D)), outputs (("o",)), dropout (0),
    name (None: that of the mods) and deterministic (False). `learn` says which captured tensors get a gradient:
    None those that require one, True all of floating-point type, False none, or their names. With `facts`,
    tensors of documents are declared `monotone` if their values do not decrease now; their values are read for
    that.

    Raises TraceError, with the line of the mod, for what cannot be expressed. Several threads may trace at
    the same time.
    """
    rest: dict[str, Any] = dict(sizes_and_clauses)
    given = Sizes(**{name: rest.pop(name) for name in Sizes._fields if name in rest})
    clauses, sizes = Clauses(**rest), given._asdict()
    if given.Dqk == given.Dv:
        sizes["D"] = sizes.pop("Dqk")
        del sizes["Dv"]
    names = Names()
    tracer = Tracer(Graph(), Captures(names), sizes)
    watch = Watch(unwrapped(score_mod, mask_mod), tracer.rows.capture, tracer.rows.array,
                  functools.partial(Followed, tracer))
    score, masks = without_hidden(tracer.graph, traced_score(tracer, watch), traced_mask(tracer, watch))
    reads = Reads(score, masks)
    captures = reads.captures
    if any(source.place is None for source in sources([capture.recipe for capture in captures])):
        watch.is_opaque("it reads a tensor of unknown origin")
    opaque = watch.opaque or tracer.opaque
    learned = learned_of(captures, reads, learn)

    writer = writing.Writer()
    roots = [score, *(part for mask in masks for part in writing.conjuncts(mask))]
    lets = writing.name_parts(roots, tracer.local_names, names, writer)
    text = clauses.before(sizes)
    for capture in captures:
        known = ["monotone"] if facts and reads.is_document(capture) and is_sorted(capture.value) else []
        text += writing.tensor_clause(capture, reads.extents(capture, sizes), capture.name in learned, known)
    if clauses.scale is not None:
        text += writing.clause("scale", repr(float(clauses.scale)))
    text += "".join(writing.clause("let", f"{let} = {value}") for let, value in lets)
    if not score.is_var("score"):
        text += writing.clause("score", writer.text(score))
    text += "".join(writing.mask_clauses(mask, writer) for mask in masks) + clauses.after()
    written = {id(node) for node in walk(roots)}
    indexed = [each for each in tracer.indexed if id(each.node) in written]
    return Traced(f"attention {clauses.title(score_mod, mask_mod)} {{\n{text}}}\n",
                  {capture.name: element(capture.value) for capture in captures},
                  tuple(capture.name for capture in captures if capture.name in learned),
                  origins.origins_of(indexed, writer.text, score_mod, mask_mod),
                  {capture.name: capture.recipe for capture in captures},
                  None if opaque else tuple(watch.steps), opaque)


# What `trace` may be told by name.
OPTIONS = (*Sizes._fields, *(each.name for each in dataclasses.fields(Clauses)), "learn", "facts")


def unwrapped(*mods: Any) -> tuple[Any, ...]:
    """The functions that torch.compile was given."""
    return tuple([mod.__dict__.get("_torchdynamo_orig_callable", mod)
                  if isinstance(mod, FunctionType) and mod.__dict__ else mod for mod in mods])
