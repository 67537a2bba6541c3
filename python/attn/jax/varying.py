"""Along which axes of a mesh arrays vary within jax.shard_map, which checks it (`check_vma`)."""

from __future__ import annotations

from typing import Any, Sequence

import jax


def _axes_of(x: Any) -> frozenset[str]:
    known = jax.typeof(x)
    found = getattr(known, "manual_axis_type", None)  # since jax 0.10; before, the axes themselves
    axes = getattr(known, "vma", None) if found is None else found.varying
    return frozenset(axes or ())


def _spread(x: Any, axes: frozenset[str]) -> Any:
    missing = tuple(sorted(axes - _axes_of(x)))
    if not missing:
        return x
    cast = getattr(jax.lax, "pcast", None)
    return getattr(jax.lax, "pvary")(x, missing) if cast is None else cast(x, missing, to="varying")


def alike(given: Sequence[Any], like: Sequence[Any] = ()) -> list[Any]:
    """The arrays, each varying along all axes along which one of them, or of `like`, does: then a gradient is summed
    where a tensor is the same on several devices."""
    axes = frozenset[str]().union(*map(_axes_of, (*given, *like)))
    return [_spread(x, axes) for x in given]
