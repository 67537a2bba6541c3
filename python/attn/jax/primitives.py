"""The two operations that attentions are in programs of JAX, of the arrays of one device: what they are is decided when
a program is lowered for a platform, so that plans are compiled for GPUs alone."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import mlir

from attn.arguments import INPUTS
from attn.errors import UnsupportedError
from attn.forms import LSE_GRADIENT
from attn.jax import handlers, kernels, reference
from attn.jax.dtypes import name_of
from attn.jax.facts import Setup, Shape, gradients_of, outputs_of
from attn.outputs import (
    NO_KEY_BUT_A_SINK, NO_KEY_BUT_AN_EPILOGUE, NO_KEY_NOTES, is_o, is_statistic, value_of_nothing,
)

forward_p = Primitive("attn_forward")
backward_p = Primitive("attn_backward")
for _primitive in (forward_p, backward_p):
    _primitive.multiple_results = True


def output_names(setup: Setup, training: bool) -> tuple[str, ...]:
    """The outputs of a forward: with `training` also those that a backward reads."""
    return setup.facts.all_outputs if training else setup.facts.outputs


def forward(setup: Setup, training: bool, tensors: Sequence[Any]) -> list[Any]:
    """The outputs of `output_names`, of tensors in the order of the setup's names."""
    found: list[Any] = forward_p.bind(*tensors, setup=setup, training=training)
    return found


def backward(setup: Setup, through_lse: bool, given: Sequence[Any]) -> list[Any]:
    """The gradients of what the facts' `differentiated` names. `given`: the tensors, the facts' `all_outputs`, the gradient of o and, with
    `through_lse`, that of lse."""
    found: list[Any] = backward_p.bind(*given, setup=setup, through_lse=through_lse)
    return found


def names_of_backward(setup: Setup, through_lse: bool) -> tuple[str, ...]:
    """The names of what a backward is given."""
    return (*setup.names, *setup.facts.all_outputs, "do", *((LSE_GRADIENT,) if through_lse else ()))


def _forward_shapes(setup: Setup, training: bool, given: Mapping[str, Any]) -> dict[str, Shape]:
    names = output_names(setup, training)
    return dict(zip(names, outputs_of(setup, dict(given), names)))


def _backward_shapes(setup: Setup, given: Mapping[str, Any]) -> dict[str, Shape]:
    return dict(zip(setup.facts.differentiated, gradients_of(setup, dict(given))))


def _abstract(shapes: Mapping[str, Shape]) -> list[Any]:
    return [jax.core.ShapedArray(one.shape, one.dtype) for one in shapes.values()]


def _abstract_forward(*given: Any, setup: Setup, training: bool) -> list[Any]:
    return _abstract(_forward_shapes(setup, training, dict(zip(setup.names, given))))


def _abstract_backward(*given: Any, setup: Setup, through_lse: bool) -> list[Any]:
    return _abstract(_backward_shapes(setup, dict(zip(setup.names, given))))


def _alone(primitive: Any) -> Any:
    """What is done if jit is switched off, for debugging: the operation is compiled nevertheless."""
    def run(*given: Any, **params: Any) -> Any:
        with jax.disable_jit(False):
            return jax.jit(lambda *xs: primitive.bind(*xs, **params))(*given)

    return run


for _primitive in (forward_p, backward_p):
    _primitive.def_impl(_alone(_primitive))
forward_p.def_abstract_eval(_abstract_forward)
backward_p.def_abstract_eval(_abstract_backward)


# --- lowering


def _is_empty(given: Mapping[str, Any]) -> bool:
    """Whether there is no row, or rows that no key can be visible to."""
    return any(0 in given[name].shape[:-1] for name in INPUTS)


def _of_nothing(setup: Setup, given: Mapping[str, Any], shapes: Mapping[str, Shape]) -> list[Any]:
    """Results where no row sees a key. Raises UnsupportedError where they depend on a sink or an epilogue."""
    said, has_rows = setup.facts.said.facts, 0 not in given["q"].shape
    if said["epilogue"] and has_rows and any(map(is_o, shapes)):
        raise UnsupportedError(NO_KEY_BUT_AN_EPILOGUE, NO_KEY_NOTES)
    if said["sink"] and has_rows and any(map(is_statistic, shapes)):
        raise UnsupportedError(NO_KEY_BUT_A_SINK, NO_KEY_NOTES)
    return [jnp.full(one.shape, value_of_nothing(name), one.dtype) for name, one in shapes.items()]


def _forward_on(run: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def lowered(*tensors: Any, setup: Setup, training: bool) -> list[Any]:
        given = dict(zip(setup.names, tensors))
        shapes = _forward_shapes(setup, training, given)
        if _is_empty(given):
            return _of_nothing(setup, given, shapes)
        return run(setup, training, given, shapes)

    return lowered


def _backward_on(run: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def lowered(*tensors: Any, setup: Setup, through_lse: bool) -> list[Any]:
        given = dict(zip(names_of_backward(setup, through_lse), tensors))
        shapes = _backward_shapes(setup, given)
        if _is_empty(given):
            return [jnp.zeros(one.shape, one.dtype) for one in shapes.values()]
        return run(setup, through_lse, given, shapes)

    return lowered


def _computed(request: str, given: Sequence[Any], shapes: Mapping[str, Shape]) -> list[Any]:
    results = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in shapes.values()]
    return list(jax.ffi.ffi_call(handlers.REFERENCE, results)(*given, request=request))


def _asked(setup: Setup, given: Mapping[str, Any], **others: object) -> str:
    params = dict(zip(setup.facts.params, setup.params))
    return setup.facts.request(names=setup.names, params=params, layout=setup.layout, dtype=name_of(given["q"]),
                               **others)


def _reference_forward(setup: Setup, training: bool, given: Mapping[str, Any],
                       shapes: Mapping[str, Shape]) -> list[Any]:
    request = _asked(setup, given, backward=False, outputs=[*shapes])
    return _computed(request, [*given.values()], shapes)


def _reference_backward(setup: Setup, through_lse: bool, given: Mapping[str, Any],
                        shapes: Mapping[str, Shape]) -> list[Any]:
    facts = setup.facts
    request = _asked(setup, given, backward=True, saved=len(facts.all_outputs), through_lse=through_lse,
                     gradients=facts.differentiated)
    return _computed(request, [*given.values()], shapes)


def _elsewhere(*_: Any, **__: Any) -> Any:
    raise UnsupportedError("attentions are computed on NVIDIA's GPUs and on the CPU, and this program is for another"
                           " platform", ['jax.default_device(jax.devices("cpu")[0]) computes there'])


def _register(primitive: Any, on: Callable[..., Any], plan: Callable[..., Any], dense: Callable[..., Any]) -> None:
    mlir.register_lowering(primitive, mlir.lower_fun(on(plan), multiple_results=True), platform="cuda")
    mlir.register_lowering(primitive, mlir.lower_fun(on(dense), multiple_results=True), platform="cpu")
    mlir.register_lowering(primitive, _elsewhere)


_register(forward_p, _forward_on, kernels.run_forward, _reference_forward)
_register(backward_p, _backward_on, kernels.run_backward, _reference_backward)
handlers.register(reference.computer)
