"""Plans in programs of XLA: which one a call takes, and its operands and results."""

from __future__ import annotations

import base64
import functools
from typing import Any, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from attn import variants
from attn import plan as plans
from attn._libattn import PlanFile, PlanInfo, TensorInfo
from attn.arguments import INPUTS, RANDOM, sizes_of
from attn.errors import BindingError, UnsupportedError
from attn.forms import LSE_GRADIENT, NAMED_LAYOUTS, Form, dense_strides, differentiated, edits_of, places_in, same_strides
from attn.jax.dtypes import DTYPES, EIGHT_BITS, HALF, REALS, name_of
from attn.jax.facts import Facts, Setup, Shape
from attn.jax.handlers import PLAN, WORKSPACE_ALIGNMENT
from attn.outputs import value_of_nothing

# What has the order of dimensions that a call says; all others are as the spec declares them.
_ORDERED = ("q", "k", "v", "o", "o_inner", "do", "dq", "dk", "dv")


@functools.lru_cache(maxsize=64)
def _as_text(contents: bytes) -> str:
    return base64.b64encode(contents).decode()


def _where(facts: Facts) -> tuple[int, str]:
    """The compute capability * 10 of the GPU that programs are for, and its name for the compiler: the local one, or,
    on machines without, the attention's target."""
    local = plans.local_gpu()
    if local is not None:
        return int(local["sm"]), "native"
    given = facts.attention._contents
    if given is not None:
        return PlanFile(given).plans[0].sm, facts.attention.target or "native"
    raise UnsupportedError(f"there is no GPU here that says what `{facts.title}` is to be compiled for",
                           ['attn.compile(.., target="h200") compiles it, and programs for CUDA, on any machine'])


def form_of(setup: Setup, given: Mapping[str, Any]) -> Form | None:
    """What distinguishes the plans of calls with such tensors. Raises BindingError if kernels do not read them."""
    facts, dtype = setup.facts, name_of(given["q"])
    readable = HALF if facts.quantized is None else (facts.dtype,)
    if dtype not in readable:
        raise BindingError(f"q, k and v are {given['q'].dtype}; on GPUs, kernels of `{facts.title}` read "
                           f"{' and '.join(DTYPES[name].name for name in readable)}",
                           ["cast them: q.astype(jnp.bfloat16)"] if dtype not in EIGHT_BITS else [])
    if setup.layout is None:
        return None
    sizes = sizes_of(*(given[name] for name in INPUTS), layout=setup.layout)
    if not all(isinstance(size, int) for size in sizes):
        raise UnsupportedError(f"a plan has numbers for sizes, and `{facts.title}` is to be exported for {sizes}",
                               ["export a program for each shape; on the CPU, sizes may stay open"])
    return Form(sizes, dtype, (setup.layout,) * 3, setup.layout, False)


def _found(setup: Setup, given: Mapping[str, Any], training: bool) -> variants.Found:
    facts, form = setup.facts, form_of(setup, given)
    sm, target = _where(facts)
    key = form, training, sm
    with facts.building:  # others wait for the first that needs it
        if key not in facts.files:
            facts.files[key] = variants.find(facts.attention, form, training, sm, builds=facts.attention.builds,
                                             target=target)
        return facts.files[key]


def _backward_of(setup: Setup, given: Mapping[str, Any], through_lse: bool) -> tuple[bytes, int, PlanInfo]:
    """The backward of a call: its file, its place there, and what it is. That of the pair, or, if a gradient of lse
    reaches it, one that is compiled for that."""
    facts, found = setup.facts, _found(setup, given, True)
    place = found.places["bwd"]
    plan = found.file.plans[place]
    if not through_lse or any(info.name == LSE_GRADIENT for info in plan.tensors):
        return found.contents, place, plan
    if facts.random and found.file.plans[found.places["fwd"]].cudnn_version > 0:
        raise UnsupportedError(
            "cuDNN drew the random numbers of this dropout, and its kernels compute no gradients through lse",
            ['attn.compile(.., engine="native") computes both directions'])
    form = form_of(setup, given)
    sm, target = _where(facts)
    key = form, LSE_GRADIENT, sm
    with facts.building:
        if key not in facts.files:
            facts.files[key] = _through_lse(facts, form, sm, target)
        built = facts.files[key]
    return built.contents, built.places["bwd"], built.file.plans[built.places["bwd"]]


def _through_lse(facts: Facts, form: Form | None, sm: int, target: str) -> variants.Found:
    names = ",".join((*facts.differentiated, "lse"))
    if not facts.attention.builds:
        raise UnsupportedError(
            f"`{facts.title}` has no plan for a backward that reaches lse, and calls may not compile one",
            [f"compile a spec with the clause `grad {names.replace(',', ', ')};`", variants.HOW_TO_BUILD])
    contents = facts.attention.build(None if form is None else form.sizes._asdict(),
                                     edits=[*(() if form is None else edits_of(form)), "--gradients", names],
                                     direction="bwd", target=target)
    file = PlanFile(contents)
    return variants.Found(file, contents, places_in(file, form, sm))


def run_forward(setup: Setup, training: bool, given: Mapping[str, Any], shapes: Mapping[str, Shape]) -> list[Any]:
    """The outputs of these names and shapes."""
    found = _found(setup, given, training)
    place = found.places["fwd"]
    made = _called(setup, (found.contents, place, found.file.plans[place]), given, shapes)
    return [made[name] for name in shapes]


def run_backward(setup: Setup, through_lse: bool, given: Mapping[str, Any],
                 shapes: Mapping[str, Shape]) -> list[Any]:
    """The gradients of these names and shapes. `given`: the tensors of the forward, its outputs, `do`
    and, if a gradient of lse reaches it, `dlse`."""
    which = _backward_of(setup, given, through_lse)
    if LSE_GRADIENT not in given and any(info.name == LSE_GRADIENT for info in which[2].tensors):
        given = {**given, LSE_GRADIENT: jnp.zeros(given["lse"].shape, jnp.float32)}
    made = _called(setup, which, given, shapes, differentiated)
    return [made[name].astype(shape.dtype) for name, shape in shapes.items()]


def _called(setup: Setup, which: tuple[bytes, int, PlanInfo], given: Mapping[str, Any],
            shapes: Mapping[str, Shape], of: Any = str) -> dict[str, Any]:
    """The results of a plan by `of` their names, whose shapes are those of `shapes`, if it has them."""
    contents, index, plan = which
    inputs = [info for info in plan.tensors if not info.is_output]
    outputs = [info for info in plan.tensors if info.is_output]
    operands = [_operand(setup, info, given) for info in inputs]
    results = [_result(setup, info, shapes.get(of(info.name))) for info in outputs]
    if plan.workspace_bytes > 0:
        results.append(jax.ShapeDtypeStruct((plan.workspace_bytes + WORKSPACE_ALIGNMENT,), jnp.uint8))
    values = dict(zip(setup.facts.params, setup.params))
    params = np.array([values[param.name] for param in plan.params], np.float64)
    found = jax.ffi.ffi_call(PLAN, results)(*operands, plan=_as_text(contents), index=np.int64(index), params=params)
    return {of(info.name): _within(info, x, given) for info, x in zip(outputs, found)}


def _operand(setup: Setup, info: TensorInfo, given: Mapping[str, Any]) -> Any:
    """A tensor as the plan reads it. Raises UnsupportedError for strides that no dense array has."""
    if info.name not in given:
        raise BindingError(f"{info.name} must be given: {info.name}=..")
    x = given[info.name]
    if info.name in RANDOM:
        return x
    if name_of(x) == "i32" and info.dtype == "i64":  # as pairs, which the handler takes
        x = jnp.stack([x, jnp.where(x < 0, -1, 0).astype(jnp.int32)], -1)
    if name_of(x) != info.dtype and name_of(x) in REALS and info.dtype in REALS:
        x = x.astype(DTYPES[info.dtype])
    if not info.addressed_by and not info.bound_strides:
        _check_dense(setup, info)
    return x


def _result(setup: Setup, info: TensorInfo, shape: Shape | None) -> jax.ShapeDtypeStruct:
    if not info.addressed_by:
        _check_dense(setup, info)
    dims = info.dims if shape is None else shape.shape
    return jax.ShapeDtypeStruct(tuple(dims), DTYPES[info.dtype])


def _check_dense(setup: Setup, info: TensorInfo) -> None:
    """Raises UnsupportedError unless the plan reads the tensor as an array without gaps, in the order of the call."""
    axes: Sequence[int] = NAMED_LAYOUTS[setup.order] if info.name in _ORDERED else range(len(info.dims))
    if same_strides(info.dims, info.strides, dense_strides(info.dims, axes)):
        return
    raise UnsupportedError(f"the plan has {info.name} with strides {list(info.strides)}, and arrays of JAX are dense",
                           ["write `layout bhsd` or `layout bshd`, and say layout= in the call"])


def _within(info: TensorInfo, x: Any, given: Mapping[str, Any]) -> Any:
    """A result whose rows past those of the last sequence, which kernels do not write, are what nothing is."""
    if not info.addressed_by.startswith("cu_seqlens"):
        return x
    is_used = jnp.arange(x.shape[0]) < given[info.addressed_by][-1]
    nothing = value_of_nothing(info.name)
    return jnp.where(is_used.reshape((-1, *(1,) * (x.ndim - 1))), x, jnp.asarray(nothing, x.dtype))
