"""Calls with arrays of the CPU, which the dense reference computes, in double precision. Programs of XLA ask for it
by a text, so that those that were exported mean the same in another process."""

from __future__ import annotations

import ctypes
import functools
import json
from typing import Any, Mapping

import numpy as np

from attn import _libattn
from attn._libattn.declarations import _DTYPE_NAMES
from attn.addressed import NOT_ADDRESSED, Addressing, Dense
from attn.arguments import INPUTS, RANDOM, sizes_of
from attn.errors import ArgumentError, BindingError, Error, SpecError, UnsupportedError
from attn.jax.dtypes import DTYPES, HALF, IN_KERNELS
from attn.jax.handlers import Array, Computer, Request
from attn.outputs import has_layout, is_amax
from attn.reference import reference
from attn.specs import Spec



@functools.lru_cache(maxsize=512)
def _parsed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def _array_of(one: Array) -> np.ndarray:
    """The memory of an array, which the call owns."""
    dtype = np.dtype(DTYPES[_DTYPE_NAMES[one.dtype]])
    shape = tuple(one.dims[: one.rank]) if one.rank else ()
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if size == 0:
        return np.zeros(shape, dtype)
    memory: Any = (ctypes.c_uint8 * size).from_address(one.data)
    found: np.ndarray = np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
    return found


def _compute(request: Any) -> int:
    """A Computer: it runs within calls of XLA, and calls nothing of JAX."""
    asked = request.contents
    try:
        said = _parsed(ctypes.string_at(asked.text, asked.text_size).decode())
        given = [_array_of(asked.arguments[place]) for place in range(asked.argument_count)]
        results = [_array_of(asked.results[place]) for place in range(asked.result_count)]
        found = _backward(said, given) if said["backward"] else _forward(said, given)
        for result, value in zip(results, found):
            result[...] = value.astype(result.dtype)
        return 0
    except Exception as error:
        text = str(error).encode()[: asked.message_size - 1]
        ctypes.memmove(asked.message, text + b"\0", len(text) + 1)
        return _status_of(error)


computer = Computer(_compute)  # lives as long as the process


@functools.lru_cache(maxsize=1)
def _numbers() -> dict[str, int]:
    """Statuses of attn.h by their names."""
    library, most = _libattn.library(), 64
    return {library.attn_status_name(number).decode(): number for number in range(most)}


def _status_of(error: Exception) -> int:
    kinds = ((BindingError, "binding"), (ArgumentError, "invalid_argument"), (SpecError, "invalid_spec"),
             (UnsupportedError, "unsupported"))
    name = error.status if isinstance(error, Error) else ""
    if not name:
        name = next((status for kind, status in kinds if isinstance(error, kind)), "internal")
    return _numbers().get(name, _numbers()["internal"])


class _Call:
    """The tensors of a request in logical order, as the reference takes them."""

    def __init__(self, said: Mapping[str, Any], given: list[np.ndarray]):
        named = dict(zip(said["names"], given))
        self.dtype = said["dtype"]
        self._swaps = said["layout"] == "bshd"
        self.spec = Spec(said["spec"])
        described = self.spec.described(said["bindings"])
        tensors = {name: self.read(name, x) for name, x in named.items()}
        for name, one in described.inputs.items():
            if one.dtype == "i64" and name in tensors:
                tensors[name] = tensors[name].astype(np.int64)
        addressing = Addressing(described.packed, described.tables) if described.located else NOT_ADDRESSED
        self.dense = Dense(addressing, tensors, described.sizes)
        sizes = sizes_of(*(self.dense.tensors[name] for name in INPUTS))
        self.bindings = {**{name: x for name, x in said["bindings"].items() if name != "D"}, **sizes._asdict()}
        self.inputs = {**self.dense.tensors, **said["params"]}
        self.options: dict[str, Any] = {"unrounded": self.dtype not in IN_KERNELS,
                                        "dtype": self.dtype if self.dtype in HALF else None}

    def read(self, name: str, x: np.ndarray) -> np.ndarray:
        """A tensor or gradient, [B, H, S, D] whatever the order is, widened if NumPy has no such type."""
        if name in RANDOM:
            return x.reshape(-1).view(np.int64)
        if x.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"):
            x = x.astype(np.float32)
        return self.swapped(name, x)

    def swapped(self, name: str, x: np.ndarray) -> np.ndarray:
        """In the other order, if calls have it, which only q, k, v, o and their gradients do, and no o of a branch."""
        return x.swapaxes(1, 2) if self._swaps and (name in (*INPUTS, "do") or has_layout(name)) else x


def _forward(said: Mapping[str, Any], given: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs that the request names."""
    call = _Call(said, given)
    found = reference(call.spec, call.bindings, call.inputs, said["outputs"], **call.options)
    return [call.swapped(name, x if is_amax(name) else call.dense.output(name, x)) for name, x in found.items()]


def _backward(said: Mapping[str, Any], given: list[np.ndarray]) -> list[np.ndarray]:
    """The gradients that the request names. Outputs of the forward are given too, and not read."""
    call = _Call(said, given)
    cotangents = given[len(said["names"]) + said["saved"]:]
    d_o = call.dense.gradient_of_output(call.read("do", cotangents[0]))
    d_lse = call.dense.gradient_of_output(cotangents[1]) if said["through_lse"] else None
    found = reference(call.spec, call.bindings, call.inputs, (),
                      {"do": d_o, "dlse": d_lse, "of": said["gradients"]}, **call.options)
    return [call.swapped(name, call.dense.gradient(name, found[name])) for name in said["gradients"]]
