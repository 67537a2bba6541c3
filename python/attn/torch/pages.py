"""Operations beside attention, for paged caches: append and merge. Their kernels are in libattn: nothing is
compiled."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from attn import _libattn
from attn._libattn import operations
from attn._libattn.declarations import _DTYPES
from attn.errors import BindingError
from attn.torch import private
from attn.torch.signature import DTYPES

_KEPT_CALLS = 1024  # of a thread


def append(
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    k_cache: torch.Tensor | None,
    v_cache: torch.Tensor | None,
    slot_mapping: torch.Tensor | None,
    *,
    cos: torch.Tensor | None = None,
    sin: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
    interleaved: bool = False,
    q: torch.Tensor | None = None,
    q_out: torch.Tensor | None = None,
    descale_k: torch.Tensor | None = None,
    descale_v: torch.Tensor | None = None,
    outside: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """Writes new keys and values to pages of a cache, and rotates queries beside them, in one kernel on the current
    stream, which may be captured. Returns `q_out`, or None without q.

    k, v: [T, Hkv, D], bf16, f16 or f32; either may be None with its cache, and their Hkv and D may differ.
    k_cache, v_cache: [pages, page_size, Hkv, D], of those types or float8_e4m3fn or float8_e5m2. Views of any
    strides, such as `cache.permute(0, 2, 1, 3)` of pages that have heads outside.
    slot_mapping: int64 [T]; row i goes to row slot % page_size of page slot // page_size. A negative slot skips the
    row. A slot outside of the cache does, too, and counts in `outside`. Rows go to different slots.
    cos, sin: [positions, rotary_dim / 2], f32, bf16 or f16, with `positions`, int32 or int64 [T]: the first
    rotary_dim elements of each head of k and q are rotated, in f32; pairs are elements i and i + rotary_dim / 2, or
    with `interleaved` 2 i and 2 i + 1. A row whose position the tables do not have is not written, and counts.
    q: [T, Hq, D] to be rotated into `q_out`, which may be q itself; None: a new tensor.
    descale_k, descale_v: f32 tensors of one element, for caches of 8 bits: x / descale is stored, rounded to the
    nearest, and the largest number where it is beyond that. Attention is given the same values; vLLM calls them
    k_scale and v_scale.
    outside: an int32 tensor of one element, to which the number of rows without a slot or position is added.

    Nothing has a gradient. Raises BindingError for a tensor that does not fit, naming it, and UnsupportedError on a GPU
    older than compute capability 8.0."""
    if q is not None and q_out is None:
        q_out = torch.empty_like(q, memory_format=torch.contiguous_format)
    tensors = (k, v, k_cache, v_cache, slot_mapping, cos, sin, positions, q, q_out, descale_k, descale_v, outside)
    _run(operations.append, _APPEND_PLACES, tensors, bool(interleaved), _append_arguments)
    return q_out


def merge(
    o_a: torch.Tensor,
    lse_a: torch.Tensor,
    o_b: torch.Tensor | None = None,
    lse_b: torch.Tensor | None = None,
    *,
    heads_first: bool = False,
    out: torch.Tensor | None = None,
    lse_out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merges results of attentions over parts of the keys to the result over all of them, in one kernel on the
    current stream, which may be captured: lse = log(sum of exp(lse_i)), o = sum of o_i exp(lse_i - lse). Returns o
    and lse.

    o_a, o_b: [T, H, D], bf16, f16 or f32, or several results [N, T, H, D].
    lse_a, lse_b: f32 [T, H], or [N, T, H]; with `heads_first` [H, T], or [N, H, T]. Natural logarithms. Of a result
    without keys it is -inf, or +inf as some libraries write it: its o is not read. If none has keys, o is 0 and lse
    is -inf. NaN makes the row NaN.
    out: [T, H, D], by default new and of o_a's type; lse_out: as lse_a for one result. Each may be the memory of a
    result, with its type and strides.

    Strides are any, of contiguous elements of a head. Nothing has a gradient. Raises BindingError for a tensor that
    does not fit, naming it, and UnsupportedError on a GPU older than compute capability 8.0."""
    rows, heads, width = o_a.shape[-3:] if o_a.dim() > 2 else (0, 0, 0)
    if out is None:
        out = torch.empty((rows, heads, width), dtype=o_a.dtype, device=o_a.device)
    if lse_out is None:
        shape = (heads, rows) if heads_first else (rows, heads)
        lse_out = torch.empty(shape, dtype=torch.float32, device=o_a.device)
    tensors = (o_a, lse_a, o_b, lse_b, out, lse_out)
    _run(operations.merge, _MERGE_PLACES, tensors, bool(heads_first), _merge_arguments)
    return out, lse_out


def _place(arguments: Any, *fields: str) -> int:
    """The number of the word that holds an address."""
    at = 0
    for field in fields:
        at += getattr(arguments, field).offset
        arguments = dict(arguments._fields_)[field]
    return at // ctypes.sizeof(ctypes.c_uint64)


_APPEND_PLACES = {
    name: _place(operations.AppendArguments, *fields.split())
    for name, fields in {
        "k": "k data",
        "v": "v data",
        "k_cache": "k_pool data",
        "v_cache": "v_pool data",
        "slot_mapping": "slot_mapping",
        "cos": "rotary cos",
        "sin": "rotary sin",
        "positions": "rotary positions",
        "q": "q data",
        "q_out": "q_out data",
        "descale_k": "k_pool descale",
        "descale_v": "v_pool descale",
        "outside": "outside",
    }.items()
}
_MERGE_PLACES = {
    name: _place(operations.MergeArguments, *fields.split())
    for name, fields in {
        "o_a": "a o data",
        "lse_a": "a lse",
        "o_b": "b o data",
        "lse_b": "b lse",
        "out": "out data",
        "lse_out": "lse",
    }.items()
}


class _Call:
    """Arguments that were checked, but for addresses: those of tensors with the same facts are put into them."""

    def __init__(self, arguments: ctypes.Structure, device: int):
        self.arguments = arguments
        self.device = device
        self.runtime = _libattn.runtime(device)
        self.words = (ctypes.c_uint64 * (ctypes.sizeof(arguments) // 8)).from_buffer(arguments)


class _OfThread(threading.local):
    """The calls that a thread has made, by the facts of their tensors."""

    def __init__(self) -> None:
        self.calls: dict[tuple[Any, ...], _Call] = {}


_of_thread = _OfThread()


def _facts(tensor: torch.Tensor | None) -> tuple[Any, ...] | None:
    if tensor is None:
        return None
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad


def _run(
    operation: Callable[..., Any],
    places: dict[str, int],
    tensors: Sequence[torch.Tensor | None],
    option: bool,
    make: Callable[[dict[str, torch.Tensor], bool], ctypes.Structure],
) -> None:
    """Enqueues on the current stream of the tensors' device. `make` checks tensors, by name, and makes the arguments
    without addresses."""
    key = (operation, option, torch.is_grad_enabled(), *map(_facts, tensors))
    call = _of_thread.calls.get(key)
    if call is None:
        given = {name: tensor for name, tensor in zip(places, tensors) if tensor is not None}
        call = _Call(make(given, option), _device_of(given))
        if len(_of_thread.calls) == _KEPT_CALLS:
            _of_thread.calls.clear()
        _of_thread.calls[key] = call
    words = call.words
    for place, tensor in zip(places.values(), tensors):
        if tensor is not None:
            words[place] = tensor.data_ptr()
    operation(call.runtime, call.arguments, _stream_of(call.device))


def _stream_of(device: int) -> int:
    assert private.current_stream is not None  # there is a tensor on a CUDA device
    return private.current_stream(device)


def _append_arguments(tensors: dict[str, torch.Tensor], interleaved: bool) -> operations.AppendArguments:
    some = next((name for name in ("k", "v", "q") if name in tensors), None)
    if some is None:
        raise BindingError("k, v and q are all None")
    rows = tensors[some].shape[0]
    _check_lines(tensors, rows, some)
    pages, page_size = _check_caches(tensors)
    return operations.AppendArguments(
        rows=rows,
        k=_rows("k", tensors),
        v=_rows("v", tensors),
        k_pool=_pool("k_cache", tensors),
        v_pool=_pool("v_cache", tensors),
        pages=pages,
        page_size=page_size,
        rotary=_rotary(tensors, interleaved),
        q=_rows("q", tensors),
        q_out=_rows("q_out", tensors),
    )


def _merge_arguments(tensors: dict[str, torch.Tensor], heads_first: bool) -> operations.MergeArguments:
    if ("o_b" in tensors) != ("lse_b" in tensors):
        raise BindingError("o_b and lse_b must be given together")
    a = _partial("a", tensors, heads_first)
    shape = tuple(tensors["o_a"].shape[-3:])
    b = _partial("b", tensors, heads_first, shape) if "o_b" in tensors else operations.Partial()
    _check_shape("out", tensors["out"], shape)
    row, head = _by_rows("lse_out", tensors["lse_out"], shape[:2], heads_first)
    out = _rows("out", tensors)
    return operations.MergeArguments(
        rows=shape[0], a=a, b=b, out=out, lse_row_stride=row, lse_head_stride=head
    )


def _device_of(tensors: dict[str, torch.Tensor]) -> int:
    """The number of the CUDA device that has all."""
    first, device = next((name, tensor.device) for name, tensor in tensors.items())
    for name, tensor in tensors.items():
        if tensor.device != device:
            raise BindingError(f"{name} is on {tensor.device}, but {first} on {device}: move it there")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise BindingError(
                f"{name} requires a gradient, which this operation does not have: call it in torch.no_grad()"
            )
    if device.type != "cuda":
        raise BindingError(f"{first} is on {device}, but must be on a CUDA device")
    return device.index


def _check_shape(name: str, tensor: torch.Tensor, shape: Sequence[int]) -> None:
    if tuple(tensor.shape) != tuple(shape):
        raise BindingError(f"{name} has shape {list(tensor.shape)}, but must have {list(shape)}")


def _check_lines(tensors: dict[str, torch.Tensor], rows: int, some: str) -> None:
    """What has a row for each of those of k, v and q."""
    for name in ("k", "v", "q", "q_out"):
        if name in tensors and (tensors[name].dim() != 3 or tensors[name].shape[0] != rows):
            raise BindingError(
                f"{name} has shape {list(tensors[name].shape)}, but must have [{rows}, heads, width] beside {some}"
            )
    for name, dtypes in (("slot_mapping", (torch.int64,)), ("positions", (torch.int32, torch.int64))):
        if name not in tensors:
            continue
        _check_shape(name, tensors[name], (rows,))
        _check_type(name, tensors[name], dtypes)
        if rows > 1 and tensors[name].stride(0) != 1:
            raise BindingError(f"{name} has a stride of {tensors[name].stride(0)}, but must be contiguous")
    for name, dtype in (
        ("descale_k", torch.float32),
        ("descale_v", torch.float32),
        ("outside", torch.int32),
    ):
        if name in tensors:
            _check_type(name, tensors[name], (dtype,))
            if tensors[name].numel() != 1:
                raise BindingError(f"{name} has {tensors[name].numel()} elements, but must have one")


def _check_type(name: str, tensor: torch.Tensor, dtypes: Sequence[torch.dtype]) -> None:
    if tensor.dtype not in dtypes:
        words = " or ".join(str(dtype) for dtype in dtypes)
        raise BindingError(f"{name} has dtype {tensor.dtype}, but must have {words}")


def _check_caches(tensors: dict[str, torch.Tensor]) -> tuple[int, int]:
    """The numbers of pages and of rows of each."""
    sizes = (0, 0)
    for name in "kv":
        new, cache = tensors.get(name), tensors.get(f"{name}_cache")
        if (new is None) != (cache is None):
            raise BindingError(f"{name} and {name}_cache must be given together")
        if new is None:
            if f"descale_{name}" in tensors:
                raise BindingError(f"descale_{name} is given without {name}")
            continue
        assert cache is not None
        if cache.dim() != 4:
            raise BindingError(
                f"{name}_cache has shape {list(cache.shape)}, but must have [pages, page_size, heads, width]"
            )
        pages = (cache.shape[0], cache.shape[1]) if sizes == (0, 0) else sizes
        _check_shape(f"{name}_cache", cache, (*pages, *new.shape[1:]))
        sizes = pages
    return sizes


def _dtype(name: str, tensor: torch.Tensor) -> int:
    if tensor.dtype not in DTYPES:
        raise BindingError(f"{name} has dtype {tensor.dtype}, which attn does not know")
    return _DTYPES[DTYPES[tensor.dtype]]


def _check_elements(name: str, tensor: torch.Tensor) -> None:
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise BindingError(
            f"{name} has strides {list(tensor.stride())}, but the elements of its last dimension must be contiguous"
        )


def _rows(name: str, tensors: dict[str, torch.Tensor]) -> operations.Rows:
    """The last three dimensions."""
    if name not in tensors:
        return operations.Rows()
    tensor = tensors[name]
    _check_elements(name, tensor)
    row, head = tensor.stride()[-3:-1]
    return operations.Rows(None, _dtype(name, tensor), 0, *tensor.shape[-2:], row, head)


def _pool(name: str, tensors: dict[str, torch.Tensor]) -> operations.Pool:
    if name not in tensors:
        return operations.Pool()
    cache = tensors[name]
    _check_elements(name, cache)
    return operations.Pool(None, _dtype(name, cache), 0, *cache.stride()[:3])


def _rotary(tensors: dict[str, torch.Tensor], interleaved: bool) -> operations.Rotary:
    cos, sin, positions = (tensors.get(name) for name in ("cos", "sin", "positions"))
    if cos is None and sin is None and positions is None:
        return operations.Rotary()
    if cos is None or sin is None or positions is None:
        raise BindingError("cos, sin and positions must be given together")
    if cos.dim() != 2:
        raise BindingError(f"cos has shape {list(cos.shape)}, but must have [positions, rotary_dim / 2]")
    _check_shape("sin", sin, cos.shape)
    _check_type("sin", sin, (cos.dtype,))
    for name in ("cos", "sin"):
        _check_elements(name, tensors[name])
    return operations.Rotary(
        dtype=_dtype("cos", cos),
        positions_dtype=_dtype("positions", positions),
        cos_stride=cos.stride(0),
        sin_stride=sin.stride(0),
        table_rows=cos.shape[0],
        rotary_dim=2 * cos.shape[1],
        interleaved=interleaved,
    )


def _by_rows(
    name: str, lse: torch.Tensor, shape: Sequence[int], heads_first: bool
) -> tuple[int, int]:
    """The strides of rows and heads."""
    _check_type(name, lse, (torch.float32,))
    if heads_first:
        _check_shape(name, lse, tuple(shape)[::-1])
        return lse.stride(1), lse.stride(0)
    _check_shape(name, lse, shape)
    return lse.stride(0), lse.stride(1)


def _partial(
    which: str, tensors: dict[str, torch.Tensor], heads_first: bool, shape: Sequence[int] = ()
) -> operations.Partial:
    """One or several results."""
    name, lse_name = f"o_{which}", f"lse_{which}"
    o, lse = tensors[name], tensors[lse_name]
    if o.dim() not in (3, 4):
        raise BindingError(f"{name} has shape {list(o.shape)}, but must have [T, H, D] or [N, T, H, D]")
    if o.dim() == 3:
        o, lse = o[None], lse[None]
    count = o.shape[0]
    if count == 0:
        raise BindingError(f"{name} has no results")
    _check_shape(name, o[0], shape or o.shape[1:])
    if lse.dim() != 3 or lse.shape[0] != count:
        raise BindingError(f"{lse_name} has shape {list(tensors[lse_name].shape)} beside {name} of {list(o.shape)}")
    row, head = _by_rows(lse_name, lse[0], o.shape[1:3], heads_first)
    return operations.Partial(_rows(name, tensors), None, row, head, count, o.stride(0), lse.stride(0))
