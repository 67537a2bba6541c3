"""The arguments of `varlen_attention`: what they must be, and the key that they have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch

from attn.errors import BindingError
from attn.torch.launch import check_rows
from attn.torch.signature import DTYPES, HALF, PLAIN, TORCH_DTYPES
from attn.torch.varlen_spec import Key, keys_for, sequences_for


_MOST_POWER = 24  # of two, for rows and keys of a sequence
_OF_Q: Mapping[str, str] = {}  # types of k and v that are not q's


class Tensors(NamedTuple):
    """The tensors of a call, in the order in which it is made."""

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    seqused_k: torch.Tensor
    block_table: torch.Tensor
    cu_seqlens_q: torch.Tensor | None
    out: torch.Tensor
    lse_out: torch.Tensor | None
    s_aux: torch.Tensor | None
    alibi_slopes: torch.Tensor | None


def example_of(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, block_table: torch.Tensor,
               lse: bool) -> Tensors:
    """Tensors that decide a plan, for a schedule; those that do not are q."""
    return Tensors(q, k_cache, v_cache, q, block_table, None, q, q if lse else None, None, None)


class Options(NamedTuple):
    """What a call computes beside its tensors; `left` and `right` are FlashAttention's, -1: no bound."""

    softmax_scale: float | None
    causal: bool
    left: int
    right: int
    softcap: float


class Capacity(NamedTuple):
    """The most sequences, rows of each and keys of each that a plan serves."""

    sequences: int
    rows: int
    keys: int


def key_of(tensors: Tensors, options: Options, capacity: Capacity) -> tuple[Key, tuple[int, ...]]:
    """The key of checked tensors, and the values of its params."""
    heads, depth = tensors.q.shape[1:]
    page, heads_kv, depth_v = tensors.v_cache.shape[1:]
    causal = bool(options.causal) or options.right == 0
    # Bounds beyond all keys are none, and so is that of a single row, which is the last.
    left = options.left if 0 <= options.left < capacity.keys - 1 else -1
    right = options.right if 0 < options.right < capacity.keys - 1 and not causal and capacity.rows > 1 else -1
    scale = options.softmax_scale
    key = Key(
        *capacity,
        heads=heads,
        heads_kv=heads_kv,
        depth=depth,
        depth_v=depth_v,
        dtype=DTYPES[tensors.q.dtype],
        page=page,
        scale=None if scale is None or scale == depth**-0.5 else float(scale),
        causal=causal and capacity.rows > 1,
        left=left >= 0,
        right=right >= 0,
        softcap=float(options.softcap),
        sinks="" if tensors.s_aux is None else DTYPES[tensors.s_aux.dtype],
        slopes="" if tensors.alibi_slopes is None else ("heads", "sequences")[tensors.alibi_slopes.dim() - 1],
        lse=tensors.lse_out is not None,
    )
    return key, tuple(bound for bound in (left, right) if bound >= 0)


def capacity_of(tensors: Tensors, power_of_rows: int, power_of_keys: int) -> Capacity:
    """That of a call without a schedule, whose max_seqlen_q and max_seqlen_k are at most these powers of two. Raises
    BindingError."""
    columns, page = tensors.block_table.shape[1], tensors.k_cache.shape[1]
    if tensors.cu_seqlens_q is None and power_of_rows > 0:
        raise BindingError("max_seqlen_q must be 1 without cu_seqlens_q: each sequence has one row then")
    if max(power_of_rows, power_of_keys) > _MOST_POWER:
        raise BindingError(f"max_seqlen_q and max_seqlen_k must be at most 2^{_MOST_POWER}")
    return Capacity(
        sequences_for(len(tensors.block_table)), 1 << power_of_rows, keys_for(1 << power_of_keys, columns, page)
    )


def check(tensors: Tensors, options: Options, cache: Mapping[str, str] = _OF_Q) -> None:
    """Raises BindingError unless all fit together."""
    check_tensors(tensors._asdict(), tensors.q.device)
    check_q_and_caches(tensors.q, tensors.k_cache, tensors.v_cache, cache)
    _check_sequences(tensors)
    _check_outputs(tensors)
    _check_heads(tensors)
    check_options(options)


def check_example(tensors: Tensors, options: Options, cache: Mapping[str, str] = _OF_Q) -> None:
    """The same for tensors without lengths and outputs."""
    check_tensors(tensors._asdict(), tensors.q.device)
    check_q_and_caches(tensors.q, tensors.k_cache, tensors.v_cache, cache)
    check_shape("block_table", tensors.block_table, ("sequences", "pages of a sequence"))
    check_numbers("block_table", tensors.block_table)
    _check_heads(tensors)
    check_options(options)


def check_tensors(tensors: Mapping[str, torch.Tensor | None], device: torch.device) -> None:
    """Raises BindingError unless all that are given are tensors on the device."""
    for name, tensor in tensors.items():
        if tensor is not None and type(tensor) not in PLAIN:
            raise BindingError(f"{name} is a {type(tensor).__name__}, not a torch.Tensor",
                               ["subclasses, and tensors without memory, are not taken"])
        if tensor is not None and tensor.device != device:
            raise BindingError(f"{name} is on {tensor.device}, but q on {device}: move it there")


def check_bounds(max_seqlen_q: int, max_seqlen_k: int) -> None:
    """Raises BindingError unless these are numbers of rows and keys that there may be."""
    for name, number in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k)):
        if not isinstance(number, int) or number > 1 << _MOST_POWER:
            raise BindingError(f"{name} is {number!r}; it must be an int, at most 2^{_MOST_POWER}",
                               ["a bound serves, so that lengths on the device need not be read for it"])


def check_options(options: Options) -> None:
    """Raises BindingError for what is no number, or a number that it cannot be."""
    for name in ("left", "right"):
        if not isinstance(getattr(options, name), int):
            raise BindingError(f"window_size has {getattr(options, name)!r}; it must be two ints, -1: no bound")
    if not isinstance(options.softcap, (int, float)) or not 0 <= options.softcap < math.inf:
        raise BindingError(f"softcap is {options.softcap!r}; it must be a number above 0, or 0 for none")
    scale = options.softmax_scale
    if scale is not None and (not isinstance(scale, (int, float)) or not math.isfinite(scale)):
        raise BindingError(f"softmax_scale is {scale!r}; it must be a number, or None: 1 / sqrt(D)")


def check_q_and_caches(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor,
                       cache: Mapping[str, str]) -> None:
    """Raises BindingError unless q and the caches fit together, and kernels can read them. `cache`: types of k and v
    that are not q's."""
    check_shape("q", q, ("T", "Hq", "D"))
    check_shape("k_cache", k_cache, ("pages", "page", "Hkv", "D"))
    check_shape("v_cache", v_cache, ("pages", "page", "Hkv", "Dv"))
    if q.dtype not in HALF:
        raise BindingError(f"q is {q.dtype}; it must be torch.bfloat16 or torch.float16")
    for name, pool in (("k", k_cache), ("v", v_cache)):
        if name in cache and pool.dtype != TORCH_DTYPES[cache[name]]:
            raise BindingError(f"{name}_cache is {pool.dtype}, but the spec has {cache[name]}:"
                               f" {TORCH_DTYPES[cache[name]]}")
        if name not in cache and pool.dtype != q.dtype:
            raise BindingError(f"{name}_cache is {pool.dtype}, but q is {q.dtype}: they must have one type",
                               ["attn.torch.VarlenAttention takes caches of 8 bits, by a spec with"
                                " `quantize kv(head);`"])
    pages, page, heads_kv, depth = k_cache.shape
    check_shape("v_cache", v_cache, (pages, page, heads_kv, "Dv"))
    if heads_kv == 0 or q.shape[1] == 0 or q.shape[1] % heads_kv != 0:
        raise BindingError(f"q has {q.shape[1]} heads, which is no multiple of the {heads_kv} of k_cache",
                           ["caches are [pages, page, Hkv, D]; of [pages, Hkv, page, D] give x.transpose(1, 2)"])
    if q.shape[2] != depth:
        raise BindingError(f"q has heads of {q.shape[2]} elements, but k_cache of {depth}")
    for name, tensor in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        check_rows(name, tensor)


def _check_sequences(tensors: Tensors) -> None:
    lengths, table, cumulative = tensors.seqused_k, tensors.block_table, tensors.cu_seqlens_q
    check_shape("block_table", table, ("sequences", "pages of a sequence"))
    count, columns = table.shape
    check_shape("seqused_k", lengths, (count,))
    if cumulative is not None:
        check_shape("cu_seqlens_q", cumulative, (count + 1,))
    elif len(tensors.q) != count:
        raise BindingError(
            f"q has {len(tensors.q)} rows, but block_table {count} sequences; without cu_seqlens_q each has one row"
        )
    for name in ("seqused_k", "block_table", "cu_seqlens_q"):
        check_numbers(name, getattr(tensors, name))
    if count > 1 and table.stride(0) < columns:
        raise BindingError(f"block_table has strides {list(table.stride())}, with which rows overlap")


def check_numbers(name: str, tensor: torch.Tensor | None) -> None:
    """Raises BindingError unless it is i32 with adjacent elements."""
    if tensor is None:
        return
    if tensor.dtype != torch.int32:
        raise BindingError(f"{name} is {tensor.dtype}; it must be torch.int32: pass {name}.to(torch.int32)")
    if tensor.shape[-1:] > (1,) and tensor.stride(-1) != 1:
        raise BindingError(f"{name} has strides {list(tensor.stride())}; elements of a row must be adjacent")


def _check_outputs(tensors: Tensors) -> None:
    q, out, lse = tensors.q, tensors.out, tensors.lse_out
    rows, heads = q.shape[:2]
    check_shape("out", out, (rows, heads, tensors.v_cache.shape[3]))
    if out.dtype != q.dtype:
        raise BindingError(f"out is {out.dtype}, but q is {q.dtype}: they must have one type")
    check_rows("out", out)
    if lse is None:
        return
    check_shape("lse_out", lse, (rows, heads))
    if lse.dtype != torch.float32:
        raise BindingError(f"lse_out is {lse.dtype}; it must be torch.float32")
    _check_dense("lse_out", lse, ["lse_out.t() is [Hq, T], as attn.torch.merge(.., heads_first=True) takes it"])


def _check_heads(tensors: Tensors) -> None:
    heads = tensors.q.shape[1]
    sinks, slopes = tensors.s_aux, tensors.alibi_slopes
    if sinks is not None:
        check_shape("s_aux", sinks, (heads,))
        _check_dense("s_aux", sinks)
        if sinks.dtype not in (torch.float32, *HALF):
            raise BindingError(f"s_aux is {sinks.dtype}; it must be torch.float32, torch.bfloat16 or torch.float16")
    if slopes is not None:
        by_sequence = slopes.dim() == 2
        check_shape("alibi_slopes", slopes, (len(tensors.block_table), heads) if by_sequence else (heads,))
        _check_dense("alibi_slopes", slopes)
        if slopes.dtype != torch.float32:
            raise BindingError(f"alibi_slopes is {slopes.dtype}; it must be torch.float32")


def _check_dense(name: str, tensor: torch.Tensor, notes: list[str] | None = None) -> None:
    if not tensor.is_contiguous() or tensor.data_ptr() % 16 != 0:
        raise BindingError(
            f"{name} has strides {list(tensor.stride())}; it must be contiguous, and begin at a multiple of 16 bytes",
            notes or [],
        )


def check_shape(name: str, tensor: torch.Tensor, shape: tuple[int | str, ...]) -> None:
    """Raises BindingError for another shape; words stand for any size."""
    if tensor is None:
        raise BindingError(f"{name} is a NoneType, not a torch.Tensor")
    fits = tensor.dim() == len(shape) and all(
        isinstance(wanted, str) or wanted == size for wanted, size in zip(shape, tensor.shape)
    )
    if not fits:
        listed = ", ".join(map(str, shape))
        raise BindingError(f"{name} has shape {list(tensor.shape)}; it must be [{listed}]")
