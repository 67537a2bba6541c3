"""FlexAttention's call, computed by attnc."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from attn.errors import BindingError, TraceError
from attn.torch.signature import DTYPES, HALF, sizes_of

MOST_KEPT = 256  # attentions, least recently used dropped first


class _Kept:
    """Attentions by what their mods mean."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Any] = OrderedDict()

    def find(self, key: Any) -> Any:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: Any, value: Any) -> None:
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)


_kept = _Kept()


def flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Callable | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    mask_mod: Callable | None = None,
    dropout_p: float = 0.0,
) -> Any:
    """`torch.nn.attention.flex_attention.flex_attention`, with dropout.

    query [B, Hq, Sq, D], key [B, Hkv, Skv, D], value [B, Hkv, Skv, Dv]. The mask is `mask_mod`, or that of
    `block_mask`, whose blocks are not needed: the compiler finds which can be skipped. `kernel_options` are
    ignored: they tune other kernels. Returns o, or (o, lse) with the natural logarithm's lse. Captured
    tensors that require a gradient get one.

    A pair of mods is traced once: again only if what they capture changes, other than the elements of
    tensors. Raises TraceError for mods that cannot be traced, and what `attn.torch.call` raises.
    """
    del kernel_options
    if block_mask is not None:
        if mask_mod is not None:
            raise BindingError("block_mask and mask_mod were both given: the mask of a block_mask is its own")
        mask_mod = block_mask.mask_mod
    sizes = sizes_of(query, key, value)
    if sizes.Hq != sizes.Hkv and not enable_gqa:
        raise BindingError(
            f"query has {sizes.Hq} heads and key {sizes.Hkv}: pass enable_gqa=True, if that is meant"
        )
    captured: list[torch.Tensor] = []
    meaning = (
        _meaning(score_mod, captured, set()),
        _meaning(mask_mod, captured, set()),
        sizes,
        query.dtype,
        query.device.type,
        scale,
        return_lse,
        float(dropout_p),
    )
    found = _kept.find(meaning)
    if found is None:
        found = _traced(query, score_mod, mask_mod, sizes, scale, return_lse, dropout_p, captured)
        _kept.put(meaning, found)
    attention, places = found
    tensors = {name: _element(captured[place]) for name, place in places.items()}
    return attention(query, key, value, **tensors)


def _traced(
    query: torch.Tensor,
    score_mod: Callable | None,
    mask_mod: Callable | None,
    sizes: Any,
    scale: float | None,
    return_lse: bool,
    dropout_p: float,
    captured: list[torch.Tensor],
) -> tuple[Any, dict[str, int]]:
    from attn.attention import Attention
    from attn.specs import Spec
    from attn.trace import trace

    traced = trace(
        score_mod,
        mask_mod,
        **sizes._asdict(),
        dtype=DTYPES[query.dtype] if query.dtype in HALF else "bf16",
        layout="bhsd",
        scale=scale,
        outputs=("o", "lse") if return_lse else ("o",),
        dropout=dropout_p,
        facts=False,  # the next call may capture other elements
    )
    places = {name: _place(tensor, captured) for name, tensor in traced.tensors.items()}
    return Attention(Spec(traced.text), {}), places


def _place(tensor: torch.Tensor, captured: list[torch.Tensor]) -> int:
    """Which of the captured tensors a spec's tensor is."""
    for place, each in enumerate(captured):
        if each is tensor or (each.dim() == 0 and each.data_ptr() == tensor.data_ptr()):
            return place
    raise TraceError(
        "a mod reads a tensor that is found neither in its closure nor in its globals",
        ["read it through a variable of the function around the mod"],
    )


def _element(tensor: torch.Tensor) -> torch.Tensor:
    """Specs have no tensors without dimensions."""
    return tensor.reshape(1) if tensor.dim() == 0 else tensor


def _meaning(value: Any, captured: list[torch.Tensor], seen: set[int]) -> Any:
    """Equal for mods that trace to the same spec. Adds the tensors that they capture, in a fixed order."""
    if isinstance(value, torch.Tensor):
        captured.append(value)
        return ("tensor", value.dtype, tuple(value.shape), value.requires_grad)
    if value is None or isinstance(value, (bool, int, float, str)):
        return (type(value), value)
    if id(value) in seen:
        return "seen"
    seen.add(id(value))
    if isinstance(value, FunctionType):
        return _function(value, captured, seen)
    if isinstance(value, MethodType):
        return (_meaning(value.__func__, captured, seen), _meaning(value.__self__, captured, seen))
    if isinstance(value, (tuple, list)):
        return (type(value), *(_meaning(each, captured, seen) for each in value))
    if isinstance(value, dict):
        return tuple((name, _meaning(each, captured, seen)) for name, each in value.items())
    if isinstance(value, (ModuleType, BuiltinFunctionType, type)):
        return ("object", id(value))
    if isinstance(value, functools.partial):
        return tuple(_meaning(each, captured, seen) for each in (value.func, value.args, value.keywords))
    # Also modules, whose parameters and buffers are in dicts among their attributes.
    attributes = _meaning(getattr(value, "__dict__", None), captured, seen)
    return (type(value), attributes, _same(value))


class _same:
    """Equal for the same object only, which it keeps alive."""

    def __init__(self, value: Any):
        self._value = value

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _same) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


def _function(function: FunctionType, captured: list[torch.Tensor], seen: set[int]) -> Any:
    cells = tuple(_cell(cell, captured, seen) for cell in function.__closure__ or ())
    defaults = _meaning(function.__defaults__, captured, seen)
    named = _meaning(function.__kwdefaults__, captured, seen)
    used = [name for name in _names(function.__code__) if name in function.__globals__]
    values = tuple((name, _meaning(function.__globals__[name], captured, seen)) for name in used)
    return (function.__code__, cells, defaults, named, values)


def _cell(cell: Any, captured: list[torch.Tensor], seen: set[int]) -> Any:
    try:
        return _meaning(cell.cell_contents, captured, seen)
    except ValueError:  # not assigned yet
        return "empty"


def _names(code: Any) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            names += _names(constant)
    return names
