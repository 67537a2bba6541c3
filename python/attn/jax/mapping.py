"""Attentions under jax.vmap: the mapped axis is part of the batches, where nothing counts them; else one is computed
after the other."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import jax
import jax.numpy as jnp

from attn.jax.partitioning import BATCHES, Operation, dims_of, partitioned


def mapped(operation: Operation) -> Callable[..., list[Any]]:
    """The operation of any devices, which can be mapped."""

    @jax.custom_batching.custom_vmap
    def call(*given: Any) -> list[Any]:
        return partitioned(operation, given)

    @call.def_vmap
    def _(size: int, is_mapped: Sequence[bool], *given: Any) -> tuple[list[Any], list[bool]]:
        if size > 0 and _folds(operation, is_mapped):
            found = _folded(call, operation, size, is_mapped, given)
        else:
            found = _one_by_one(call, size, is_mapped, given)
        return found, [True] * len(operation.results)

    run: Callable[..., list[Any]] = call
    return run


def _has_batches(operation: Operation, name: str) -> bool:
    dims = dims_of(operation.setup, name)
    return dims[0] == BATCHES and BATCHES not in dims[1:]


def _folds(operation: Operation, is_mapped: Sequence[bool]) -> bool:
    """Whether the mapped axis and the batches can be one dimension: all results have batches, all that is mapped has,
    and nothing counts them."""
    setup = operation.setup
    if setup.layout is None or BATCHES not in setup.facts.divisible:
        return False
    names = [name for name, one in zip(operation.operands, is_mapped) if one]
    return all(_has_batches(operation, name) for name in (*operation.results, *names))


def _folded(call: Callable[..., list[Any]], operation: Operation, size: int, is_mapped: Sequence[bool],
            given: Sequence[Any]) -> list[Any]:
    def fold(name: str, x: Any, one: bool) -> Any:
        if not one and BATCHES not in dims_of(operation.setup, name):
            return x
        whole = x if one else jnp.broadcast_to(x, (size, *x.shape))
        return whole.reshape((whole.shape[0] * whole.shape[1], *whole.shape[2:]))

    found = call(*map(fold, operation.operands, given, is_mapped))
    return [x.reshape((size, x.shape[0] // size, *x.shape[1:])) for x in found]


def _one_by_one(call: Callable[..., list[Any]], size: int, is_mapped: Sequence[bool],
                given: Sequence[Any]) -> list[Any]:
    def one(parts: Sequence[Any]) -> list[Any]:
        rest = iter(parts)
        return call(*(next(rest) if each else x for each, x in zip(is_mapped, given)))

    parts = tuple(x for each, x in zip(is_mapped, given) if each)
    if size > 0:
        found: list[Any] = jax.lax.map(one, parts)
        return found
    shapes = jax.eval_shape(one, tuple(jnp.zeros(x.shape[1:], x.dtype) for x in parts))
    return [jnp.zeros((0, *each.shape), each.dtype) for each in shapes]
