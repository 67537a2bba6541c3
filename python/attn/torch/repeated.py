"""Calls of attention over a paged cache that were made before, and builds of schedules, as builtin functions:
`python/native/repeated.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from attn import _libattn
from attn._libattn.declarations import _I32, _I64, _POINTER, _SIZE
from attn.torch import direct, varlen_calls
from attn.torch.varlen_calls import BoundCall


class _Build(ctypes.Structure):
    """attn_repeated_build."""

    _fields_ = [("schedule", _POINTER), ("binding", _POINTER), ("addresses", _POINTER), ("address_count", _SIZE),
                ("starts", _I32), ("lengths", _I32), ("ones", _POINTER), ("most_sequences", _I64),
                ("device_type", _I32), ("device", _I32)]


def _declared() -> ctypes.PyDLL | None:
    library = direct.LIBRARY
    if library is None:
        return None
    thing = ctypes.py_object
    for name, result, arguments in (
        ("create", thing, [_POINTER, _POINTER, thing, thing]), ("set", _I32, [thing, thing]),
        ("run", thing, [thing]), ("build_function", thing, [thing]), ("error", _POINTER, [thing]),
    ):
        function = getattr(library, f"attn_repeated_{name}")
        function.restype, function.argtypes = result, arguments
    return library


_LIBRARY: Any = _declared()  # None if it is not there: no call is repeated


class Fit(NamedTuple):
    """For what a call may be repeated: `settings`, as varlen_attention is given them, bounds of max_seqlen_q and
    max_seqlen_k, and the stream; None: any."""

    settings: tuple[Any, Any, tuple[int, int], Any]
    least_rows: int
    most_rows: int
    least_keys: int
    most_keys: int
    stream: int | None


class Building(NamedTuple):
    """What a build of a schedule needs. `addresses` of the binding's tensors, `places` of these by name. `ones`: 0, 1,
    .. on the device, as cu_seqlens_q of sequences of one row."""

    schedule: _libattn.Schedule
    binding: _libattn.Binding
    addresses: Sequence[int]
    places: Mapping[str, int]
    ones: torch.Tensor
    most_sequences: int
    device: int


class Repeated:
    """Calls that were made before. For one thread at a time.

    `run` takes the tensors, the settings, max_seqlen_q, max_seqlen_k and the stream; `build` cu_seqlens_q, seqused_k,
    num_sequences, shared_keys and the stream. Both return a status: 0, UNFIT if nothing that is known fits, or one that
    `error` says more of."""

    def __init__(self, building: Building | None = None):
        build, kept = _Build(), building
        if building is not None:
            addresses = (ctypes.c_void_p * len(building.addresses))(*building.addresses)
            build = _Build(
                schedule=building.schedule._handle.value.value, binding=building.binding._handle.value.value,
                addresses=ctypes.cast(addresses, ctypes.c_void_p), address_count=len(addresses),
                starts=building.places["cu_seqlens_q"], lengths=building.places["lengths_kv"],
                ones=building.ones.data_ptr(), most_sequences=building.most_sequences,
                device_type=varlen_calls.DEVICE_TYPE, device=building.device)
        self._calls = _LIBRARY.attn_repeated_create(direct.EXCHANGE, ctypes.byref(build),
                                                    (int, tuple, None, torch.Tensor), kept)
        self.run = _LIBRARY.attn_repeated_run(self._calls)
        self.build = _LIBRARY.attn_repeated_build_function(self._calls)
        self.error: int = _LIBRARY.attn_repeated_error(self._calls)

    def set(self, calls: Iterable[tuple[Fit, BoundCall]]) -> None:
        """Sets the calls, in the order in which they are tried."""
        listed = tuple((*fit.settings, *fit[1:], call.handle, call.schedule, call) for fit, call in calls)
        _LIBRARY.attn_repeated_set(self._calls, listed)
