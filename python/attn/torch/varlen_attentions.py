"""Attention of any spec or mods over a paged cache: `VarlenAttention`, and its schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from attn import _libattn
from attn.errors import BindingError, UnsupportedError
from attn.torch import varlen_calls, varlen_kernels
from attn.torch.schedules import Schedule, _Lengths
from attn.torch.varlen_arguments import (Capacity, Options, Tensors, capacity_of, check, check_bounds, check_example,
                                         check_numbers, check_shape, check_tensors, example_of)
from attn.torch.varlen_calls import Placed, bind_placed, step_of_table, with_call
from attn.torch.varlen_kernels import (Asked, Kernels, Sizes, addresses_of, check_inputs, placed_tensors,
                                       require_no_capture, sizes_of)
from attn.torch.varlen_spec import keys_for, power_of_two, sequences_for
from attn.types import Mod, Outputs

_PLAIN = Options(None, False, -1, -1, 0.0)


class VarlenAttention:
    """Attention of a spec, or of FlexAttention's mods, over the pages of a cache: as `attn.torch.varlen_attention`,
    with any mask and score.

        attend = attn.torch.VarlenAttention("tree.attn")
        attend = attn.torch.VarlenAttention(score_mod=alibi, mask_mod=causal)
        o = attend(q, k_cache, v_cache, cu_seqlens_q=.., seqused_k=.., block_table=.., max_seqlen_q=.., max_seqlen_k=..)

    `spec`: whatever `attn.compile` takes. Its score, masks, sink, scale, tensors and params are computed; its sizes,
    layouts, dtype, lengths and outputs are those of calls, and it is aligned as `align bottom_right`: q_idx is the
    position of a row in its sequence, whose last rows q has, and q_raw its number among these. `parameters` are the
    spec's. `score_mod(score, b, h, q_idx, kv_idx)` and `mask_mod(b, h, q_idx, kv_idx)` have positions, too; b is the
    number of the sequence. What they capture is what it was when kernels were compiled, but for elements of tensors.
    `softmax_scale`: of mods, None: 1 / sqrt(D).

    A plan is compiled for the powers of two of the sizes of calls, as for `varlen_attention`. What a spec reads must
    not depend on Sq and Skv, which are the most that a plan serves. Calls share memory: they must not overlap, and
    CUDA graphs that hold them must outlive neither this object nor their schedule. For one thread at a time.
    Raises ArgumentError, SpecError, TraceError; calls raise them too, and what `varlen_attention` raises."""

    def __init__(self, spec: object = None, *, score_mod: Mod | None = None, mask_mod: Mod | None = None,
                 softmax_scale: float | None = None, **parameters: object):
        self._asked = Asked(spec, (score_mod, mask_mod), softmax_scale, parameters)
        self._kernels: dict[tuple[Sizes, int], Kernels] = {}
        self._calls: dict[Kernels, _Calls] = {}  # without a schedule of the caller, which has its own

    def __call__(self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, *,
                 cu_seqlens_q: torch.Tensor | None = None, seqused_k: torch.Tensor, block_table: torch.Tensor,
                 max_seqlen_q: int, max_seqlen_k: int, out: torch.Tensor | None = None,
                 lse_out: torch.Tensor | None = None, return_lse: bool = False,
                 schedule: VarlenSchedule | None = None, **inputs: object) -> Outputs:
        """Arguments and results are those of `varlen_attention`. `inputs`: the spec's tensors and params by name; a
        tensor with an element for each sequence may have as many as there are, others are as large as the plan has
        them. `schedule`: one that `schedule` made of the same inputs, as far as masks read them."""
        varlen_calls.require_library()
        device = varlen_calls.device_of(q)
        check_shape("q", q, ("T", "Hq", "D"))
        check_shape("v_cache", v_cache, ("pages", "page", "Hkv", "Dv"))
        if out is None:
            out = q.new_empty((*q.shape[:2], v_cache.shape[3]))
        if lse_out is None and return_lse:
            lse_out = torch.empty(out.shape[:2], dtype=torch.float32, device=out.device)
        tensors = Tensors(q, k_cache, v_cache, seqused_k, block_table, cu_seqlens_q, out, lse_out, None, None)
        check_bounds(max_seqlen_q, max_seqlen_k)
        check(tensors, _PLAIN, self._asked.cache)
        check_inputs(inputs, q.device)
        _refuse_gradients(q, k_cache, v_cache)
        if 0 not in q.shape and len(block_table) > 0:
            self._run(tensors, max_seqlen_q, max_seqlen_k, device, schedule, inputs)
        return out if lse_out is None else (out, lse_out)

    def schedule(self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, block_table: torch.Tensor, *,
                 max_seqlen_q: int, max_seqlen_k: int, return_lse: bool = False, max_parts: int = 0,
                 split_keys: int = 0, capacity_rows: int = 0, capacity_keys: int = 0, sm_margin: int = 0,
                 **inputs: object) -> VarlenSchedule:
        """A schedule for calls like these (`attn.torch.Schedule` says what arguments mean), and with these `inputs`:
        those that masks read decide it, and must be in calls what they are in it.
        Raises UnsupportedError for kernels that take none: those whose masks are no bands of keys. They list blocks
        themselves at each call."""
        example = example_of(q, k_cache, v_cache, block_table, return_lse)
        check_example(example, _PLAIN, self._asked.cache)
        check_bounds(max_seqlen_q, max_seqlen_k)
        check_inputs(inputs, q.device)
        varlen_calls.require_library()
        device, page = varlen_calls.device_of(q), k_cache.shape[1]
        count, columns = block_table.shape
        capacity = Capacity(sequences_for(count), power_of_two(max_seqlen_q), keys_for(max_seqlen_k, columns, page))
        kernels = self._kernels_of(sizes_of(example, capacity), device)
        if not kernels.takes_schedule:
            raise UnsupportedError("this attention takes no schedule: its mask is no band of keys, whose ends lengths,"
                              " params and tensors of a batch or head say", ["call it without one"])
        room = capacity_keys or (len(k_cache) * page if split_keys else 0)
        made = _libattn.Schedule(kernels.executable, max_parts, split_keys, sm_margin, capacity_rows, room)
        return VarlenSchedule(kernels, made, q.device, device, max(max_seqlen_k, kernels.sizes.keys), inputs)

    def _kernels_of(self, sizes: Sizes, device: int) -> Kernels:
        found = self._kernels.get((sizes, device))
        if found is None:
            found = self._kernels[sizes, device] = Kernels(self._asked, sizes, device)
        return found

    def _run(self, tensors: Tensors, rows: int, keys: int, device: int, schedule: VarlenSchedule | None,
             inputs: dict[str, Any]) -> None:
        if schedule is None:
            capacity = capacity_of(tensors, (rows - 1).bit_length(), (keys - 1).bit_length())
            kernels = self._kernels_of(sizes_of(tensors, capacity), device)
        else:
            kernels = schedule._kernels_for(tensors, rows, keys)
            if self._kernels.get((kernels.sizes, device)) is not kernels:
                raise BindingError("the schedule is of another attention", ["make it by this one's `schedule`"])
        given = inputs if schedule is None else {**schedule._inputs, **inputs}
        extras, params = kernels.split(given, len(tensors.block_table))
        if schedule is None:
            calls = self._own_calls(kernels, tensors.q.device)
        else:
            schedule._check_params(params)
            calls = schedule._calls
        calls.run(tensors, extras, params, schedule is None, varlen_calls.stream_of(device))

    def _own_calls(self, kernels: Kernels, device: torch.device) -> _Calls:
        """Those without a schedule of the caller. They make one before, if the kernels take one."""
        found = self._calls.get(kernels)
        if found is None:
            require_no_capture("this attention has no memory yet for calls without a schedule")
            own = _libattn.Schedule(kernels.executable) if kernels.takes_schedule else None
            found = self._calls[kernels] = _Calls(kernels, own, device)
        return found


def _facts(tensors: Tensors) -> tuple[Any, ...]:
    """What a binding depends on, beside addresses."""
    strides = (x.stride() for x in (tensors.q, tensors.out, tensors.k_cache, tensors.v_cache))
    sizes = tuple(size == 1 for size in (len(tensors.q), tensors.q.shape[1]))
    return *strides, sizes, tensors.k_cache.shape, step_of_table(tensors.block_table)


def _refuse_gradients(*tensors: torch.Tensor) -> None:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise BindingError("attention over a cache has no gradient: call it in torch.no_grad()")


class _Calls:
    """Bindings of kernels that use one schedule, or none, by what they depend on: the newest, and those that CUDA
    graphs use. Without a schedule, kernels read lengths of all sequences that a plan has: they are copied to memory
    that has them."""

    def __init__(self, kernels: Kernels, schedule: _libattn.Schedule | None, device: torch.device):
        self._kernels, self._schedule = kernels, schedule
        self._bound: dict[tuple[Any, ...], _Bound] = {}
        count = kernels.sizes.sequences
        self.numbers = torch.arange(count + 1, dtype=torch.int32, device=device)
        if schedule is None:
            self._lengths = torch.zeros(count, dtype=torch.int32, device=device)
            self._starts = torch.zeros(count + 1, dtype=torch.int32, device=device)

    def run(self, tensors: Tensors, extras: dict[str, torch.Tensor], params: tuple[float, ...], makes_schedule: bool,
            stream: int) -> None:
        """Enqueues one, which is bound before if none was with such strides. Raises BindingError if that would be in
        a capture."""
        bound = self._bound_of(tensors, extras, params, stream)
        starts, lengths = self._sequences(tensors)
        built = self._schedule if makes_schedule else None
        bound.run(placed_tensors(tensors, extras, starts, lengths), params, built, len(tensors.block_table), stream)
        if varlen_kernels.is_capturing():
            bound.captured = True

    def _bound_of(self, tensors: Tensors, extras: dict[str, torch.Tensor], params: tuple[float, ...],
                  stream: int) -> _Bound:
        facts = _facts(tensors)
        found = self._bound.get(facts)
        if found is None:
            require_no_capture("no call with tensors of such strides was bound yet")
            found = _Bound(self._kernels, facts, tensors, extras, params, self._schedule, stream)
            self._bound = {each.facts: each for each in with_call(list(self._bound.values()), found)}
        return found

    def _sequences(self, tensors: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """Starts and lengths, as kernels read them."""
        count, starts = len(tensors.seqused_k), tensors.cu_seqlens_q
        if starts is None:
            starts = self.numbers[:count + 1]
        if self._schedule is not None:
            return starts, tensors.seqused_k
        self._starts[:count + 1].copy_(starts)
        self._starts[count + 1:].copy_(starts[-1:].expand(len(self._starts) - count - 1))
        self._lengths[:count].copy_(tensors.seqused_k)
        self._lengths[count:].zero_()
        return self._starts, self._lengths


class _Bound:
    """A binding for tensors of the same `facts`, which runs with others. `captured`: whether a CUDA graph has a run,
    and so uses the binding as long as it is replayed."""

    def __init__(self, kernels: Kernels, facts: tuple[Any, ...], tensors: Tensors, extras: dict[str, torch.Tensor],
                 params: tuple[float, ...], schedule: _libattn.Schedule | None, stream: int):
        self.facts, self.captured = facts, False
        self._kernels, self._params = kernels, params
        self._binding = bind_placed(kernels.executable, self._placed(tensors, extras), params, stream, schedule)

    def run(self, tensors: dict[str, torch.Tensor], params: tuple[float, ...], built: _libattn.Schedule | None,
            count: int, stream: int) -> None:
        """Enqueues it with tensors by the plan's names; `built`: the schedule to make before, of `count` sequences."""
        self._binding.set_addresses(addresses_of(self._kernels.executable, tensors), checked=True)
        for name, value, before in zip(self._kernels.params, params, self._params):
            if value != before:
                self._binding.set_param(name, value)
        self._params = params
        if built is not None:
            built.build(self._binding, stream, count)
        self._binding.execute(stream)

    def _placed(self, tensors: Tensors, extras: dict[str, torch.Tensor]) -> Placed:
        executable = self._kernels.executable
        placed = Placed(executable, tensors.q.device, step_of_table(tensors.block_table))
        infos = {info.name: info for info in executable.tensors}
        for name, tensor in (("q", tensors.q), ("o", tensors.out)):
            info = infos[name]
            strides = varlen_calls._strides_of_rows(info, tensor)
            placed[name] = (tensor.data_ptr(), info.dtype, info.dims, strides)
        for name, pool in (("k", tensors.k_cache), ("v", tensors.v_cache)):
            placed[name] = (pool.data_ptr(), infos[name].dtype, *varlen_calls._view_of_pool(infos[name], pool))
        for name, tensor in extras.items():  # what they hold may be checked now
            placed[name] = (tensor.data_ptr(), *placed[name][1:])
        return placed


class VarlenSchedule:
    """A schedule of a `VarlenAttention`, made once of the lengths of a batch (`build`) for the calls of all layers: as
    `attn.torch.Schedule`, with the inputs that it was made with."""

    def __init__(self, kernels: Kernels, schedule: _libattn.Schedule, device: torch.device, index: int, most_keys: int,
                 inputs: dict[str, Any]):
        self._kernels, self._schedule, self._device, self._index = kernels, schedule, device, index
        self._most_keys, self._inputs = most_keys, inputs
        extras, self._params = kernels.split(inputs, 0)  # builds and calls say how many sequences there are
        placed = Placed(kernels.executable, device)
        for name, tensor in extras.items():
            placed[name] = (tensor.data_ptr(), *placed[name][1:])
        self._lengths = _Lengths(kernels.executable, placed, self._params, self._stream(), schedule)
        self._calls = _Calls(kernels, schedule, device)
        self._built: tuple[Any, ...] = ()

    def build(self, cu_seqlens_q: torch.Tensor | None, seqused_k: torch.Tensor,
              num_sequences: int | torch.Tensor | None = None, shared_keys: int | None = 0) -> None:
        """As `attn.torch.Schedule.build`."""
        check_tensors({"seqused_k": seqused_k, "cu_seqlens_q": cu_seqlens_q}, self._device)
        check_shape("seqused_k", seqused_k, ("B",))
        check_numbers("seqused_k", seqused_k)
        self._check_count("seqused_k", len(seqused_k))
        if cu_seqlens_q is not None:
            check_shape("cu_seqlens_q", cu_seqlens_q, (len(seqused_k) + 1,))
            check_numbers("cu_seqlens_q", cu_seqlens_q)
        extras, _ = self._kernels.split(self._inputs, len(seqused_k))
        sequences, address, shared = Schedule._count(self._device, num_sequences, shared_keys, len(seqused_k))
        starts = self._calls.numbers if cu_seqlens_q is None else cu_seqlens_q
        self._lengths.set(cu_seqlens_q=starts, lengths_kv=seqused_k, **extras)
        self._schedule.build(self._lengths.binding, self._stream(), sequences, address, shared)
        self._built = (starts, seqused_k, num_sequences)

    def check(self, block_table: torch.Tensor, k_cache: torch.Tensor) -> None:
        """As `attn.torch.Schedule.check`: looks at the lengths of the last build, and at the pages of its sequences."""
        if not self._built:
            raise BindingError("the schedule was not built yet")
        extras, _ = self._kernels.split(self._inputs, len(self._built[1]))
        placed = Placed(self._kernels.executable, self._device, step_of_table(block_table))
        placed.set_pages(len(k_cache))
        for name, tensor in extras.items():
            placed[name] = (tensor.data_ptr(), *placed[name][1:])
        lengths = _Lengths(self._kernels.executable, placed, self._params, self._stream(), self._schedule)
        lengths.set(cu_seqlens_q=self._built[0], lengths_kv=self._built[1], page_table=block_table)
        lengths.binding.check(self._stream())

    def flags(self) -> int:
        """As `attn.torch.Schedule.flags`."""
        return self._schedule.flags(self._stream())

    def _stream(self) -> int:
        return varlen_calls.stream_of(self._index)

    def _check_count(self, name: str, count: int) -> None:
        if count > self._kernels.sizes.sequences:
            raise BindingError(f"{name} has {count} sequences, but the schedule is for {self._kernels.sizes.sequences}",
                               ["make it with a block_table of as many rows"])

    def _check_params(self, params: tuple[float, ...]) -> None:
        if params != self._params:
            raise BindingError(f"{', '.join(self._kernels.params)} are {params}, but the schedule's {self._params}",
                               ["make a schedule for each"])

    def _kernels_for(self, tensors: Tensors, rows: int, keys: int) -> Kernels:
        """Those of calls. Raises BindingError for a call of others."""
        ours = self._kernels.sizes
        self._check_count("block_table", len(tensors.block_table))
        if rows > ours.rows or keys > self._most_keys:
            raise BindingError(f"max_seqlen_q and max_seqlen_k are {rows} and {keys}, but the schedule is for"
                               f" {ours.rows} and {self._most_keys}")
        theirs = sizes_of(tensors, Capacity(*ours[:3]))
        if theirs != ours:
            raise BindingError(f"the schedule was made for another call: sizes are {theirs}, but the schedule's {ours}")
        if tensors.block_table.shape[1] < ours.columns:
            raise BindingError(f"block_table has {tensors.block_table.shape[1]} pages of a sequence, but the schedule's"
                               f" {ours.columns}")
        return self._kernels
