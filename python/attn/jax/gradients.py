"""Attentions as differentiable functions of JAX's arrays."""

from __future__ import annotations

from typing import Any, Callable, NoReturn, Sequence

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from attn.errors import UnsupportedError
from attn.jax import primitives
from attn.jax.facts import Setup
from attn.jax.mapping import mapped
from attn.jax.partitioning import Operation
from attn.jax.varying import alike
from attn.outputs import is_amax


MOST_FUNCTIONS = 256  # of an attention; of more, the oldest is forgotten


def function_of(setup: Setup) -> Callable[..., list[Any]]:
    """The compiled function of a setup, of tensors in the order of its names: the outputs that the spec lists. One for
    all calls, which lives at most as long as the attention."""
    functions = setup.facts.functions
    known = functions.get(setup)
    if known is None:
        made = jax.jit(_differentiable(setup))
        with setup.facts.making:
            if len(functions) >= MOST_FUNCTIONS:  # each value of a param has one
                del functions[next(iter(functions))]
            known = functions.setdefault(setup, made)
    return known


def _differentiable(setup: Setup) -> Callable[..., list[Any]]:
    facts = setup.facts
    shown = len(facts.outputs)

    @jax.custom_vjp
    def attention(*tensors: Any) -> list[Any]:
        return _forward(setup, False)(*tensors)

    def attention_fwd(*tensors: Any) -> tuple[list[Any], Any]:
        given = [each.value for each in tensors]  # with whether they have tangents
        outputs = _forward(setup, True)(*given)
        return outputs[:shown], (given, outputs)

    def attention_bwd(saved: Any, d_outputs: Sequence[Any]) -> tuple[Any, ...]:
        tensors, outputs = saved
        found = _gradients(setup, tensors, outputs, dict(zip(facts.outputs, d_outputs)))
        return tuple(found.get(name) for name in setup.names)

    attention.defvjp(attention_fwd, attention_bwd, symbolic_zeros=True)
    return attention


def _gradients(setup: Setup, tensors: Sequence[Any], outputs: Sequence[Any],
               d_outputs: dict[str, Any]) -> dict[str, Any]:
    """The gradients of tensors by name; none if nothing reached an output that has gradients. Raises UnsupportedError if
    one reached that has none."""
    facts = setup.facts
    reached = {name: x for name, x in d_outputs.items() if not _is_zero(x) and not is_amax(name)}
    if reached and facts.quantized is not None:
        raise UnsupportedError(f"`{facts.title}` is of 8 bits, which has no backward in attn.jax",
                               ["attn.torch trains with 8 bits; jax.lax.stop_gradient of its outputs has no gradient"])
    d_o = reached.pop("o", None)
    d_lse = reached.pop("lse", None)
    for name in reached:
        _refuse_statistic(name)
    if d_o is None and d_lse is None:
        return {}
    of_o = outputs[facts.all_outputs.index(facts.saved_o)]
    if d_o is None:
        d_o = jnp.zeros(of_o.shape, of_o.dtype)
    given = [*tensors, *outputs, d_o, *(() if d_lse is None else (d_lse,))]
    found = _backward(setup, d_lse is not None)(*given)
    return dict(zip(facts.differentiated, found))


def _is_zero(gradient: Any) -> bool:
    return gradient is None or isinstance(gradient, SymbolicZero)


def _refuse_statistic(name: str) -> NoReturn:
    notes = [f"if no gradient is meant, compute with jax.lax.stop_gradient({name})"]
    raise UnsupportedError(f"{name} has no gradient, and the backward reached it: only o and lse have one", notes)


def _forward(setup: Setup, training: bool) -> Callable[..., list[Any]]:
    names = primitives.output_names(setup, training)
    operation = Operation(setup, setup.names, names, lambda *xs: primitives.forward(setup, training, xs))
    return _never_differentiated(mapped(operation))


def _backward(setup: Setup, through_lse: bool) -> Callable[..., list[Any]]:
    operation = Operation(setup, primitives.names_of_backward(setup, through_lse), setup.facts.differentiated,
                          lambda *xs: primitives.backward(setup, through_lse, xs))
    return _never_differentiated(mapped(operation))


def _never_differentiated(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """The function, of which a derivative is refused: it would be a second one, or one in forward mode."""
    found: Callable[..., list[Any]] = jax.custom_jvp(lambda *xs: alike(function(*xs), xs))
    found.defjvp(_refuse_derivative)  # type: ignore[attr-defined]
    return found


def _refuse_derivative(*_: Any) -> NoReturn:
    raise UnsupportedError(
        "attention has first derivatives in reverse mode alone, and this is a second one or one in forward mode",
        ["jax.grad and jax.vjp differentiate it once; for jax.hessian and jax.jvp, write it in jax.numpy"])
