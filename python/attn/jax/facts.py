"""What the calls of one attention with JAX's arrays share."""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, NamedTuple

import jax.numpy as jnp

from attn.attention import Attention
from attn.facts import CallFacts
from attn.jax.dtypes import DTYPES, IN_KERNELS, name_of
from attn.outputs import has_layout, is_amax, is_o
from attn.variants import Found


class Facts(CallFacts):
    """The facts of calls with JAX's arrays, and what was made for them."""

    def __init__(self, attention: Attention):
        super().__init__(attention)
        self.attention = attention
        # Its parts, of batches ("B") and heads ("Hq"), are attentions of their own.
        self.divisible = frozenset(self.said.facts["divisible"])
        self.functions: dict[Setup, Callable[..., Any]] = {}  # changed with `making`
        self.making = threading.Lock()
        self.files: dict[Any, Found] = {}  # by form, direction and GPU; each is built once, with `building`
        self.building = threading.Lock()

    def request(self, **others: object) -> str:
        """A text that says what to compute, in another process too."""
        attention = self.attention
        return json.dumps({"spec": attention.source.text, "bindings": dict(attention.bindings), **others},
                          sort_keys=True)


class Setup(NamedTuple):
    """What of a call is known when a program is traced: which tensors it has, by name, the values of params, and the
    order of the dimensions of q, k, v and o; None where other tensors locate rows."""

    facts: Facts
    names: tuple[str, ...]
    params: tuple[float, ...]
    layout: str | None

    @property
    def order(self) -> str:
        """The order of dimensions of what has four."""
        return self.layout or "bhsd"


_facts_lock = threading.Lock()


def facts_of(attention: Attention) -> Facts:
    """The facts of an attention, found once."""
    found: Facts | None = attention._jax_facts
    if found is None:
        with _facts_lock:
            found = attention._jax_facts
            if found is None:
                found = attention._jax_facts = Facts(attention)
    return found


class Shape(NamedTuple):
    """The shape and the type of an array."""

    shape: tuple[int, ...]
    dtype: Any


def outputs_of(setup: Setup, given: dict[str, Any], names: tuple[str, ...]) -> list[Shape]:
    """The outputs of these names, of tensors with shapes and types like those of `given`. Those of branches are
    [B, Hq, Sq, Dv] whatever the layout is, as plans write them."""
    q, v = given["q"], given["v"]
    quantized = setup.facts.quantized
    of_o = q.dtype if quantized is None else DTYPES[quantized.o]
    statistic = jnp.dtype("float32") if name_of(q) in IN_KERNELS else q.dtype
    rows = q.shape[:-1]
    if setup.layout == "bshd":
        rows = (rows[0], rows[2], rows[1])
    made = []
    for name in names:
        if is_o(name):
            made.append(Shape((*(q.shape[:-1] if has_layout(name) else rows), v.shape[-1]), of_o))
        else:
            made.append(Shape((1,), jnp.dtype("float32")) if is_amax(name) else Shape(rows, statistic))
    return made


def gradients_of(setup: Setup, given: dict[str, Any]) -> list[Shape]:
    """The gradients of what the facts' `differentiated` names. (8-bit attention has no backward here.)"""
    return [Shape(given[name].shape, given[name].dtype) for name in setup.facts.differentiated]
