"""Attention over a paged cache as inference engines call it: `varlen_attention`."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from attn import _libattn
from attn.errors import BindingError
from attn.torch import varlen_calls
from attn.torch.repeated import Fit, Repeated
from attn.torch.schedules import Schedule
from attn.torch.statistics import is_capturing
from attn.torch.varlen_arguments import Capacity, Options, Tensors, capacity_of, check, key_of
from attn.torch.varlen_calls import ANY_NUMBER, UNFIT, BoundCall, make_call
from attn.torch.varlen_spec import executable_of, keys_for
from attn.types import Outputs

_MOST_SETTINGS = 16  # of a thread, each of which has memory for a schedule
_NO_WINDOW = (-1, -1)

_error = _libattn._error_handle
_is_grad_enabled = torch.is_grad_enabled


def varlen_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    cu_seqlens_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor,
    block_table: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float | None = None,
    causal: bool = True,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    s_aux: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    lse_out: torch.Tensor | None = None,
    return_lse: bool = False,
    schedule: Schedule | None = None,
) -> Outputs:
    """Attention of packed queries over the pages of a cache, on the current stream. Names and meaning are those of
    `flash_attn_varlen_func` with a paged cache. Returns o, or o and lse if `return_lse` or `lse_out` is given.

    q: [T, Hq, D], bf16 or f16: the rows of all sequences, one after the other, of any strides of rows and heads.
    k_cache, v_cache: [pages, page, Hkv, D] and [pages, page, Hkv, Dv] of q's type and any strides of pages, rows and
    heads: `x.transpose(1, 2)` of pages with heads outside. Hq is a multiple of Hkv.
    cu_seqlens_q: i32 [B + 1], where sequences begin among the rows, and the end of the last; None: each sequence has
    one row, q is [B, Hq, D].
    seqused_k: i32 [B], the keys of each sequence, with those of the new rows.
    block_table: i32 [B, n], the pages of each sequence, of any stride of rows. Entries past a sequence's keys, and
    what is in unused rows of pages, may be anything.
    max_seqlen_q, max_seqlen_k: bounds of the rows and keys of a sequence. A plan is compiled for the next powers of
    two of B and of these (at most 4096 sequences). What is beyond them is not computed right: `Schedule.check` says so.
    softmax_scale: None: 1 / sqrt(D). causal, window_size: (left, right) keys that a row sees beside its own, -1: all;
    the last row of a sequence is aligned with its last key. softcap: s becomes softcap * tanh(s / softcap); 0: none.
    alibi_slopes: f32 [Hq] or [B, Hq]; slope * abs(distance) is subtracted. s_aux: f32, bf16 or f16 [Hq], a score of
    each head in the denominator that has no value (a sink).
    out: [T, Hq, Dv] of any strides of rows and heads, and of q's type. lse_out: f32 [T, Hq], contiguous: the natural
    logarithm of the sum of exponentials, with the sink. `lse.t()` is [Hq, T], as `merge(.., heads_first=True)` takes
    it. With both nothing is allocated, after the first call. Rows without keys are 0, and -inf in lse. Rows past
    the last sequence are not written.
    schedule: an `attn.torch.Schedule` that was built of these lengths. Without one each call makes its own.

    After a first call the same may be captured into a CUDA graph. Nothing waits for the GPU, and nothing has a
    gradient. May be called by several threads at once, with a schedule by one.
    Raises BindingError for an argument that does not fit, naming it, or a schedule of other kernels, and
    UnsupportedError for what there are no kernels for."""
    # A call that was made before with such tensors is enqueued in one step.
    if out is not None and not (_is_grad_enabled() and _have_gradients(q, k_cache, v_cache)):
        repeated = None
        if type(schedule) is Schedule:
            repeated, index = schedule._repeated, schedule._index
        elif schedule is None and not is_capturing():
            repeated, index = _of_thread.repeated, varlen_calls.device_of(q)
        if repeated is not None and (lse_out is not None or not return_lse):
            status = repeated.run(
                q, k_cache, v_cache, seqused_k, block_table, cu_seqlens_q, out, lse_out, s_aux, alibi_slopes,
                softmax_scale, causal, _NO_WINDOW if window_size is None else window_size, softcap, max_seqlen_q,
                max_seqlen_k, varlen_calls.stream_of(index))
            if status == 0:
                return out if lse_out is None else (out, lse_out)
            if status != UNFIT:
                raise _libattn._failure(status, repeated.error)
    if out is None:
        out = _new_out(q, v_cache)
    if lse_out is None and return_lse:
        lse_out = torch.empty(out.shape[:2], dtype=torch.float32, device=out.device)
    _call(Tensors(q, k_cache, v_cache, seqused_k, block_table, cu_seqlens_q, out, lse_out, s_aux, alibi_slopes),
          (softmax_scale, causal, window_size, softcap), max_seqlen_q, max_seqlen_k, schedule)
    return out if lse_out is None else (out, lse_out)


def _call(tensors: Tensors, wanted: tuple[Any, Any, Any, Any], max_seqlen_q: int, max_seqlen_k: int,
          schedule: Schedule | None) -> None:
    """The longer way, which binds what was not bound before and says what is wrong. `wanted`: softmax_scale, causal,
    window_size and softcap."""
    scale, causal, window_size, softcap = wanted
    device = varlen_calls.device_of(tensors.q)
    stream, capturing = varlen_calls.stream_of(device), is_capturing()
    try:
        left, right = window_size or _NO_WINDOW
        settings: tuple[Any, ...] = (scale, causal, left, right, softcap)
        if schedule is not None:
            kept = schedule._calls
        else:
            # The powers of two that a plan is for.
            settings = (stream, (max_seqlen_q - 1).bit_length(), (max_seqlen_k - 1).bit_length(), device, *settings)
            kept = _calls_of_capture(stream) if capturing else _of_thread.calls
        calls = kept.get(settings, ())
    except (AttributeError, TypeError, ValueError):
        _refuse(window_size, softcap, max_seqlen_q, max_seqlen_k, schedule)
    if schedule is not None:
        schedule._check_bounds(max_seqlen_q, max_seqlen_k)
    if _is_grad_enabled():
        _refuse_gradients(*tensors[:3])
    call: BoundCall | None
    for call in calls:
        status = varlen_calls.run(call.handle, tensors, call.schedule, stream, _error())
        if status != UNFIT:
            break
    else:
        call = _first_call(tensors, settings, kept, schedule, stream)
        status = 0 if call is None else varlen_calls.run(call.handle, tensors, call.schedule, stream, _error())
    if status != 0:
        _fail(status)
    if capturing and call is not None:
        call.note_capture()


def _first_call(tensors: Tensors, settings: tuple[Any, ...], kept: dict[tuple[Any, ...], list[BoundCall]],
                schedule: Schedule | None, stream: int) -> BoundCall | None:
    """Checks everything, makes a call and keeps it with others of its settings. None if nothing is to be written."""
    options = Options(*settings[-5:])
    check(tensors, options)
    varlen_calls.require_library()
    if 0 in tensors.q.shape or len(tensors.block_table) == 0:
        return None
    of_settings = kept.get(settings, [])
    if schedule is not None:
        if tensors.cu_seqlens_q is None and is_capturing():
            raise BindingError("call varlen_attention once before the capture: without cu_seqlens_q it fills memory "
                               "that later calls use, which a graph would do at its launches alone")
        call = schedule._call(tensors, options, stream)
    else:
        call = _own_call(tensors, options, settings[1:3], of_settings, stream)
    if settings not in kept and kept is _of_thread.calls and len(kept) >= _MOST_SETTINGS:
        del kept[next(iter(kept))]
    kept[settings] = varlen_calls.with_call(of_settings, call)
    if schedule is not None:
        schedule._repeat(kept)
    elif kept is _of_thread.calls:
        _of_thread.repeat()
    return call


def _own_call(tensors: Tensors, options: Options, powers: tuple[int, int], others: Sequence[BoundCall],
              stream: int) -> BoundCall:
    """A call that makes its schedule each time: in the memory of another one of the same key, if there is one. Where
    block_table says how many keys a sequence has, other calls have one of as many pages."""
    capacity = capacity_of(tensors, *powers)
    is_cut = capacity.keys < keys_for(1 << powers[1], ANY_NUMBER, 1)
    key, params = key_of(tensors, options, capacity)
    executable = executable_of(key, varlen_calls.device_of(tensors.q))
    schedule = next((other.own_schedule for other in others if other.key == key), None)
    if schedule is None:
        schedule = _libattn.Schedule(executable)
    most_columns = key.columns if is_cut else ANY_NUMBER
    return make_call(executable, key, params, tensors, schedule, True, stream, most_columns)


class _OfThread(threading.local):
    """The calls of a thread without a schedule of the caller, by stream and settings."""

    def __init__(self) -> None:
        self.calls: dict[tuple[Any, ...], list[BoundCall]] = {}
        self._repeated: Repeated | None = None

    @property
    def repeated(self) -> Repeated | None:
        """Those calls, or None before there are any."""
        return self._repeated

    def repeat(self) -> None:
        """Says which calls there are."""
        if self._repeated is None:
            self._repeated = Repeated()
        self._repeated.set((_fit_of(settings), call) for settings, calls in self.calls.items() for call in calls)


def _fit_of(settings: tuple[Any, ...]) -> Fit:
    """That of a call without a schedule of the caller."""
    stream, power_of_rows, power_of_keys, _, scale, causal, left, right, softcap = settings
    rows, keys = ((1 + (1 << power >> 1), 1 << power) for power in (power_of_rows, power_of_keys))
    return Fit((scale, causal, (left, right), softcap), *rows, *keys, stream)


_of_thread = _OfThread()

# The calls of each capture without a schedule of the caller: the graph uses their memory as long as it is replayed.
_captured: dict[int, dict[tuple[Any, ...], list[BoundCall]]] = {}


def _calls_of_capture(stream: int) -> dict[tuple[Any, ...], list[BoundCall]]:
    return _captured.setdefault(_capture_of(stream), {})


def _capture_of(stream: int) -> int:
    """The driver's number of the capture that the stream is in."""
    status, number = ctypes.c_int(), ctypes.c_uint64()
    driver = ctypes.CDLL("libcuda.so.1")
    # Newer drivers have both; what follows is the graph, and what was captured last, of which nothing is asked.
    ask, rest = getattr(driver, "cuStreamGetCaptureInfo_v3", None), 4
    if ask is None:
        ask, rest = driver.cuStreamGetCaptureInfo_v2, 3
    failed = ask(ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(number), *(None,) * rest)
    if failed:
        raise BindingError(f"the driver does not say what stream {stream} is captured for (error {failed})")
    return number.value


def _new_out(q: Any, v_cache: Any) -> torch.Tensor:
    for name, tensor, rank in (("q", q, 3), ("v_cache", v_cache, 4)):
        if not isinstance(tensor, torch.Tensor):
            raise BindingError(f"{name} is a {type(tensor).__name__}, not a torch.Tensor")
        if tensor.dim() != rank:
            raise BindingError(f"{name} has shape {list(tensor.shape)}; it must have {rank} dimensions")
    return torch.empty((*q.shape[:2], v_cache.shape[3]), dtype=q.dtype, device=q.device)


def _have_gradients(*tensors: Any) -> bool:
    return any(getattr(tensor, "requires_grad", False) for tensor in tensors)


def _refuse_gradients(*tensors: torch.Tensor) -> None:
    for name, tensor in zip(Tensors._fields, tensors):
        if tensor.requires_grad:
            raise BindingError(
                f"{name} requires a gradient, which varlen_attention does not have: call it in torch.no_grad()"
            )


def _refuse(window_size: Any, softcap: Any, max_seqlen_q: Any, max_seqlen_k: Any, schedule: Any) -> NoReturn:
    """Raises BindingError for the first argument that is none."""
    for name, number in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k)):
        if not isinstance(number, int):
            raise BindingError(f"{name} is a {type(number).__name__}; it must be an int",
                               ["a bound serves, so that lengths on the device need not be read for it"])
    if schedule is not None and not isinstance(schedule, Schedule):
        raise BindingError(f"schedule is a {type(schedule).__name__}, not an attn.torch.Schedule")
    raise BindingError(f"window_size is {window_size!r}, and softcap {softcap!r}; they must be (left, right), two ints,"
                       " and a number")


def _fail(status: int) -> NoReturn:
    if status == UNFIT:
        raise BindingError("the tensors cannot be read through DLPack",
                           ["tensors of subclasses, and those of torch.compile's tracing, are not taken"])
    raise _libattn._failure(status, _error())
