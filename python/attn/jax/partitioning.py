"""Attentions in programs of several devices: batches and heads that are divided stay so, and nothing is gathered but
what every part needs. What is not divisible, each device computes as a whole."""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple, Sequence

import jax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from attn.arguments import INPUTS
from attn.jax.facts import Setup
from attn.outputs import has_layout, is_amax, is_o

# How parts of a result make the whole.
_JOINED: dict[str, Callable[..., Any]] = {"sum": jax.lax.psum, "max": jax.lax.pmax}

BATCHES, HEADS, KEY_HEADS = "B", "Hq", "Hkv"


def dims_of(setup: Setup, name: str) -> tuple[str, ...]:
    """The dimensions of a tensor, an output or a gradient by their names; those that nothing divides have others."""
    heads = HEADS if name == "q" or is_o(name) or name == "do" else KEY_HEADS
    if name in INPUTS or is_o(name) or name == "do":
        rest = ("rows", "elements")
        is_swapped = setup.layout != "bhsd" and (has_layout(name) or not is_o(name))
        return (BATCHES, rest[0], heads, rest[1]) if is_swapped else (BATCHES, heads, *rest)
    if name in setup.facts.said.inputs:
        return setup.facts.said.inputs[name].dims
    return ("1",) if is_amax(name) else (BATCHES, HEADS, "rows")


class Operation(NamedTuple):
    """An operation of one device: its operands and results by name, and `run`, of the operands. Results have the
    dimensions of what has their names: gradients those of tensors, of which devices may have terms of a sum."""

    setup: Setup
    operands: tuple[str, ...]
    results: tuple[str, ...]
    run: Callable[..., list[Any]]


def partitioned(operation: Operation, given: Sequence[Any]) -> list[Any]:
    """The results of the operation, on whatever devices its operands are."""
    setup = operation.setup
    if setup.layout is None or not setup.facts.divisible:
        return operation.run(*given)
    wrapped = custom_partitioning(lambda *xs: tuple(operation.run(*xs)))
    rule, sizes, whole = _rule(operation, given)
    parts = _Partition(operation, given)
    wrapped.def_partition(partition=parts, infer_sharding_from_operands=parts.results, sharding_rule=rule,
                          need_replication_factors=whole, **sizes)
    return list(wrapped(*given))


def _rule(operation: Operation, given: Sequence[Any]) -> tuple[str, dict[str, int], tuple[str, ...]]:
    """The rule in words of einsum: `b` are batches, `g` heads of k, and `r` those of q that share one, which are divided
    if all share one. Its sizes, and the factors that are not divided."""
    setup = operation.setup
    whole: list[str] = []  # in the order in which they occur first, as XLA wants them
    shapes = dict(zip(operation.operands, (x.shape for x in given)))
    axis = 1 if setup.layout == "bhsd" else 2
    shared, is_one = shapes["q"][axis] // shapes["k"][axis], shapes["k"][axis] == 1

    def word(dim: str) -> str:
        if dim == BATCHES and BATCHES in setup.facts.divisible:
            return "b"
        if dim == KEY_HEADS and HEADS in setup.facts.divisible and not is_one:
            return "g"
        if dim == HEADS and HEADS in setup.facts.divisible:
            if is_one or shared == 1:
                return "r" if is_one else "g"
            if "r" not in whole:
                whole.append("r")
            return "(g r)"
        whole.append(f"w{len(whole)}")
        return whole[-1]

    def words(names: Sequence[str]) -> str:
        return ", ".join(" ".join(map(word, dims_of(setup, name))) for name in names)

    text = f"{words(operation.operands)} -> {words(operation.results)}"
    return text, {"r": shared} if "r" in whole else {}, tuple(whole)


class _Partition:
    """What custom_partitioning asks: how operands and results are divided, and the operation of one part."""

    def __init__(self, operation: Operation, given: Sequence[Any]):
        self._operation = operation
        setup = operation.setup
        shapes = dict(zip(operation.operands, (x.shape for x in given)))
        self._heads_axis = 1 if setup.layout == "bhsd" else 2
        heads, key_heads = (shapes[name][self._heads_axis] for name in "qk")
        self._is_one = key_heads == 1  # all heads of q share that of k, which then is not divided
        self._batches, self._heads = shapes["q"][0], heads if self._is_one else key_heads

    def __call__(self, mesh: Any, operands: Sequence[Any], results: Any) -> Any:
        """The mesh, the function of one part, and the shardings of results and operands."""
        along = self._along(mesh, operands)

        def run(*part: Any) -> tuple[Any, ...]:
            found = self._operation.run(*part)
            return tuple(self._whole(name, x, along) for name, x in zip(self._operation.results, found))

        return (mesh, run, self._shardings(mesh, self._operation.results, along),
                self._shardings(mesh, self._operation.operands, along))

    def results(self, mesh: Any, operands: Sequence[Any], _: Any) -> tuple[NamedSharding, ...]:
        """The shardings of results, for XLA's partitioner before Shardy, which does not read the rule."""
        return self._shardings(mesh, self._operation.results, self._along(mesh, operands))

    def _along(self, mesh: Any, operands: Sequence[Any]) -> dict[str, tuple[str, ...]]:
        """The axes of the mesh that divide batches and heads: those of q."""
        divisible = self._operation.setup.facts.divisible
        spec = (*(getattr(operands[0].sharding, "spec", None) or ()), *(None,) * 4)
        along = {BATCHES: _axes(mesh, spec[0], self._batches) if BATCHES in divisible else (),
                 HEADS: _axes(mesh, spec[self._heads_axis], self._heads) if HEADS in divisible else ()}
        return {**along, KEY_HEADS: () if self._is_one else along[HEADS]}

    def _shardings(self, mesh: Any, names: Sequence[str],
                   along: dict[str, tuple[str, ...]]) -> tuple[NamedSharding, ...]:
        setup = self._operation.setup
        return tuple(NamedSharding(mesh, PartitionSpec(*(along.get(dim) or None for dim in dims_of(setup, name))))
                     for name in names)

    def _whole(self, name: str, x: Any, along: dict[str, tuple[str, ...]]) -> Any:
        """A result, of which devices may have parts that add up."""
        dims = dims_of(self._operation.setup, name)
        missing: list[str] = []
        if BATCHES not in dims:
            missing += along[BATCHES]
        if HEADS not in dims and (self._is_one or KEY_HEADS not in dims):
            missing += along[HEADS]
        joined = _JOINED["max" if is_amax(name) else "sum"]
        return joined(x, tuple(missing)) if missing else x


def _axes(mesh: Any, entry: Any, size: int) -> tuple[str, ...]:
    """The axes of the mesh that divide a dimension, if into equal parts."""
    axes = () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
    return axes if size % math.prod(mesh.shape[axis] for axis in axes) == 0 else ()
