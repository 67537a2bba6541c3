"""The arguments of a call with JAX's arrays, sorted, and checked against the spec."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from attn import layouts
from attn.addressed import addressing_of, check_shapes
from attn.arguments import INPUTS, RANDOM, check_names, extent, named, number, sizes_of
from attn.attention import Attention
from attn.errors import BindingError, UnsupportedError
from attn.jax import dropout
from attn.jax.dtypes import DTYPES, EIGHT_BITS, NAMES, REALS, name_of
from attn.jax.facts import Facts, Setup, facts_of
from attn.reference import as_array


def sorted_call(attention: Attention, args: Sequence[Any], kwargs: Mapping[str, Any], layout: str | None,
                key: Any) -> tuple[Setup, list[Any]]:
    """The setup of a call, and its tensors in the order of the setup's names. Raises BindingError for missing, unknown
    and unusable arguments."""
    facts = facts_of(attention)
    if facts.quantized is not None and facts.quantized.by == "mxfp8":
        raise UnsupportedError(
            f"`{facts.title}` has scales of blocks (`quantize mxfp8`), which attn.jax does not take yet",
            ["`quantize per_tensor` works; `attnc run` and attn.hpp take scales of blocks"])
    if facts.said.held:
        raise UnsupportedError(f"in `{facts.title}` v is a part of k, by its clause `values`, and attn.jax takes q, k and v",
                               ["leave out `values`, and give k[..., :Dv] as v; NumPy's arrays and torch tensors work"])
    if facts.cache:
        raise UnsupportedError(
            f"`{facts.title}` has keys and values of 8 bits beside queries of 16, which attn.jax does not take yet",
            ["attn.torch and attn.hpp do"])
    given = named(attention.captured, args, kwargs)
    check_names(facts.title, given, (*INPUTS, *facts.declared, *facts.params), facts.optional)
    params = tuple(_param(name, given.pop(name)) for name in facts.params)
    tensors = {name: _array(facts, name, given[name]) for name in INPUTS}
    tensors |= {name: _array(facts, name, x) for name, x in given.items() if name not in INPUTS}
    _check_dtypes(facts, tensors)
    _add_scales(facts, tensors)
    dropout.add_random(facts, tensors, key)
    order = _checked_order(facts, tensors, layout)
    return Setup(facts, tuple(tensors), params, order), [*tensors.values()]


def _param(name: str, value: Any) -> float:
    if isinstance(value, jax.core.Tracer):
        raise BindingError(f"{name} is a param: a number of Python, and not one that a traced program computes",
                           [f"declare it as a tensor: `tensor {name}: f32[1];`, and read {name}[0]"])
    return float(number(name, value))


def number_of(name: str, value: Any, instead: str) -> float:
    """A number that is part of the text of a spec. Raises BindingError, with what to write `instead`, for one that a
    traced program computes, and for what is none."""
    if isinstance(value, jax.core.Tracer):
        raise BindingError(f"{name} is computed by a traced program; it must be a number of Python", [instead])
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BindingError(f"{name} is {value!r}; it must be a number", [instead]) from None


# What to write instead of a scale that a program computes.
SCALE = ("a shape gives one: scale=q.shape[-1] ** -0.5; one that a program computes may be multiplied to q, with"
         " scale=1.0")


def _array(facts: Facts, name: str, value: Any) -> Any:
    """An array of JAX, of the type that the spec declares if it is a captured tensor."""
    if name in INPUTS and not isinstance(value, (jax.Array, np.ndarray)):
        raise BindingError(f"{name} is a {type(value).__name__}, not an array of JAX")
    if name in RANDOM:
        return dropout.pair(name, value)
    declared = facts.said.inputs[name].dtype if name in facts.said.inputs else None
    if declared is not None and isinstance(value, (bool, int, float)) and facts.said.inputs[name].dims != ("1",):
        raise BindingError(f"{name} is a number, but the spec declares a tensor of {declared}")
    if isinstance(value, jax.Array) or name in INPUTS:
        x: Any = jnp.asarray(value)
    elif isinstance(value, (bool, int, float)):
        x = jnp.full((1,), value, DTYPES[declared or "f32"])
    else:
        x = jnp.asarray(_numpy(name, value))
    if declared is None:
        return x
    if x.ndim == 0 and facts.said.inputs[name].dims == ("1",):
        x = x.reshape((1,))
    return _typed(name, x, declared)


def _numpy(name: str, value: Any) -> np.ndarray:
    """What is no array of JAX, such as a tensor of PyTorch that a mod captured."""
    value = as_array(name, value.detach() if type(value).__module__.partition(".")[0] == "torch" else value)
    if value.dtype == np.int64 and jax.dtypes.canonicalize_dtype(np.int64) != np.int64 and value.size > 0:
        wide = max(int(value.max()), -int(value.min()) - 1)
        if wide > np.iinfo(np.int32).max:
            raise BindingError(f"{name} has integers of more than 32 bits, which JAX would cut",
                               ['jax.config.update("jax_enable_x64", True) keeps them'])
    found: np.ndarray = value
    return found


def _typed(name: str, x: Any, declared: str) -> Any:
    found = name_of(x)
    is_wider = declared == "i64" and found == "i32"  # there are no others unless JAX is told so
    if found != declared and not is_wider and not (found in REALS and declared in REALS):
        raise BindingError(f"{name} is of {x.dtype}, but the spec declares {declared}",
                           [f"pass {name}.astype(jnp.{_jnp_name(declared)})"])
    return x


def _jnp_name(declared: str) -> str:
    return next(name for name, spec in NAMES.items() if spec == declared)


def _check_dtypes(facts: Facts, tensors: Mapping[str, Any]) -> None:
    found = {name: name_of(tensors[name]) for name in INPUTS}
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} {tensors[name].dtype}" for name in INPUTS)
        raise BindingError(f"q, k and v must have the same dtype, not {listed}")
    q, dtype = tensors["q"], found["q"]
    if dtype not in REALS:
        raise BindingError(f"q, k and v are {q.dtype}; they must be of 16, 32 or 64 bit floats")
    if facts.quantized is None and dtype in EIGHT_BITS:
        raise BindingError(f"q, k and v are {q.dtype}, but `{facts.title}` has no scales for 8 bits",
                           ["write `dtype e4m3;` and `quantize per_tensor;` in the spec"])
    if facts.quantized is not None and dtype != facts.dtype:
        raise BindingError(f"q, k and v are {q.dtype}, but `{facts.title}` has {facts.dtype}",
                           [f"divide by the scale, and round: (q / descale_q).astype(jnp.{_jnp_name(facts.dtype)})"])


def _add_scales(facts: Facts, tensors: dict[str, Any]) -> None:
    """Adds the scales that were not given, which are the spec's, and checks those that were."""
    for name, scale in facts.scales.items():
        if name not in tensors:
            assert scale is not None  # of those that must be given, one is missing
            tensors[name] = jnp.full((1,), scale, jnp.float32)
    for name in facts.scales:
        x = tensors[name]
        if name_of(x) != "f32" or x.shape != (1,):
            raise BindingError(f"{name} is {x.dtype} of shape {list(x.shape)}; it must be float32 of shape [1]")


def _checked_order(facts: Facts, tensors: Mapping[str, Any], layout: str | None) -> str | None:
    """The order of the dimensions of q, k, v and o; None where other tensors locate rows. Raises BindingError if
    tensors do not fit together, ArgumentError for an order that there is not."""
    addressing = addressing_of(facts.said)
    if addressing is not None:
        if layout is not None:
            layouts.refuse_order(facts.said)
        check_shapes(addressing, tensors)
        return None
    order = layouts.checked(layout) or "bhsd"
    sizes = sizes_of(*(tensors[name] for name in INPUTS), layout=order)
    layouts.check(facts.said, sizes, layout)
    for name, one in facts.said.inputs.items():
        if name in RANDOM or name not in tensors:
            continue
        wanted = tuple(_size(dim, sizes._asdict()) for dim in one.dims)
        if None not in wanted and tuple(tensors[name].shape) != wanted:
            raise BindingError(f"{name} has shape {list(tensors[name].shape)}, but the spec declares"
                               f" [{', '.join(one.dims)}], here {list(wanted)}")
    return order


def _size(dim: str, sizes: Mapping[str, int]) -> int | None:
    """The size of a dimension; None if it depends on more than sizes."""
    try:
        return int(extent(dim, sizes))
    except (NameError, SyntaxError):
        return None
