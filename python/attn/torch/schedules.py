"""Schedules of attention over a paged cache, made once for all layers of a model: `Schedule`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from attn import _libattn
from attn.errors import BindingError
from attn.torch import varlen_calls
from attn.torch.varlen_arguments import (Capacity, Options, Tensors, check_bounds, check_example, check_numbers,
                                         check_shape, check_tensors, example_of, key_of)
from attn.torch.repeated import Building, Fit, Repeated
from attn.torch.varlen_calls import ANY_NUMBER, UNFIT, BoundCall, Placed, bind_placed, make_call, step_of_table
from attn.torch.varlen_spec import executable_of, keys_for, power_of_two, sequences_for

# What a call and its schedule have in common, beside sizes.
_WORDS = {
    "dtype": "the type of q", "heads": "q's number of heads", "heads_kv": "k_cache's number of heads",
    "depth": "D", "depth_v": "Dv", "page": "the page of k_cache", "scale": "softmax_scale", "causal": "causal",
    "left": "that window_size has a left bound", "right": "that window_size has a right bound", "softcap": "softcap",
    "sinks": "the type of s_aux", "slopes": "what alibi_slopes are of", "lse": "return_lse",
}


class Schedule:
    """Which blocks of threads compute what: made once of the lengths of a batch (`build`), and used by the calls of
    `varlen_attention` of all layers, or by those with the same window and softcap. Compiles the kernels, so that no
    later call does.

    q, k_cache, v_cache: tensors like those of the calls, of which types, heads, depths and the page count.
    block_table: i32 [B, n], or one of as many rows as there may be sequences, of at least the n of the calls.
    max_seqlen_q, max_seqlen_k: the most rows and keys of a sequence, for all batches. Other arguments as in
    `varlen_attention`, s_aux and alibi_slopes of the same types; `return_lse`: whether calls ask for lse.
    max_parts: the most parts that the keys of some rows are divided into; 0: no limit, 1: none.
    split_keys: keys of a part, so that the result of a sequence does not depend on the others; 0: as balances the
    GPU. With it, capacity_rows and capacity_keys are the most rows and keys of all sequences together, which decide
    how much memory there is for parts: 0: B times max_seqlen_q, and the keys that the cache has room for.
    sm_margin: blocks of threads that attention leaves to other kernels.

    Has memory of its own on the device, about 45 MB, for all of its builds and calls. Calls that use it must not
    overlap: they share it, and after an overlap it must be built again. CUDA graphs may hold builds and calls, and
    must not outlive it. For one thread at a time.
    Raises BindingError for what does not fit, ArgumentError for options that cannot be, UnsupportedError."""

    def __init__(self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, block_table: torch.Tensor, *,
                 max_seqlen_q: int, max_seqlen_k: int, softmax_scale: float | None = None, causal: bool = True,
                 window_size: Sequence[int] = (-1, -1), softcap: float = 0.0,
                 alibi_slopes: torch.Tensor | None = None, s_aux: torch.Tensor | None = None,
                 return_lse: bool = False, max_parts: int = 0, split_keys: int = 0, capacity_rows: int = 0,
                 capacity_keys: int = 0, sm_margin: int = 0):
        example = example_of(q, k_cache, v_cache, block_table, return_lse)
        example = example._replace(s_aux=s_aux, alibi_slopes=alibi_slopes)
        left, right = window_size or (-1, -1)
        options = Options(softmax_scale, bool(causal), left, right, softcap)
        check_example(example, options)
        check_bounds(max_seqlen_q, max_seqlen_k)
        varlen_calls.require_library()
        page, (count, columns) = k_cache.shape[1], block_table.shape
        capacity = Capacity(sequences_for(count), power_of_two(max_seqlen_q), keys_for(max_seqlen_k, columns, page))
        self._device, self._index = q.device, varlen_calls.device_of(q)
        self._key, self._params = key_of(example, options, capacity)
        self._most_keys = max(max_seqlen_k, self._key.keys)
        self._executable = executable_of(self._key, self._index)
        self._schedule = _libattn.Schedule(self._executable, max_parts, split_keys, sm_margin, capacity_rows,
                                           capacity_keys or (len(k_cache) * page if split_keys else 0))
        self._calls: dict[tuple[Any, ...], list[BoundCall]] = {}
        self._lengths = _Lengths(self._executable, Placed(self._executable, q.device), self._params, self._stream(),
                                 self._schedule)
        self._ones = torch.arange(self._key.sequences + 1, dtype=torch.int32, device=q.device)
        self._built: tuple[Any, ...] = ()
        self._repeated = Repeated(Building(self._schedule, self._lengths.binding, self._lengths.addresses,
                                           self._lengths.places, self._ones, self._key.sequences, self._index))
        self._run, self._build = self._repeated.run, self._repeated.build

    def build(self, cu_seqlens_q: torch.Tensor | None, seqused_k: torch.Tensor,
              num_sequences: int | torch.Tensor | None = None, shared_keys: int | None = 0) -> None:
        """Makes the schedule, by a kernel on the current stream, for the calls on it that follow. May be captured
        into a CUDA graph, which reads the lengths at each replay.

        cu_seqlens_q: i32 [B + 1], or None: one row of each sequence. seqused_k: i32 [B]. B is at most that of the
        `block_table` which the schedule was made with. num_sequences: how many of these there are, an int, or an i32
        tensor of one element on the device; None: all. Rows of others are not written. The tensors are kept until
        the next build.
        shared_keys: how many keys all of these sequences begin with, which are in the same pages, as a system prompt:
        they are read once, by the pages of the first sequence, in whole blocks of keys of the kernel. Block tables are
        not compared. None: `num_sequences` has two elements, of which the second is that number. Where some row does
        not see all of them, or memory is too small, sequences read them themselves, and `flags` says so. The order of
        sums depends on the number.
        Raises BindingError, ArgumentError (also for shared_keys with split_keys), UnsupportedError, with the reason, if
        kernels cannot read shared keys once."""
        status = self._build(cu_seqlens_q, seqused_k, num_sequences, shared_keys,
                             varlen_calls.stream_of(self._index))
        if status == UNFIT:
            self._build_checked(cu_seqlens_q, seqused_k, num_sequences, shared_keys)
        elif status != 0:
            raise _libattn._failure(status, self._repeated.error)
        self._built = (self._ones if cu_seqlens_q is None else cu_seqlens_q, seqused_k, num_sequences)

    def _build_checked(self, cu_seqlens_q: torch.Tensor | None, seqused_k: torch.Tensor,
                       num_sequences: int | torch.Tensor | None, shared_keys: int | None) -> None:
        """The same the longer way, which says what is wrong."""
        self._check_lengths(cu_seqlens_q, seqused_k)
        sequences, address, shared = self._count(self._device, num_sequences, shared_keys, len(seqused_k))
        starts = self._ones if cu_seqlens_q is None else cu_seqlens_q
        self._lengths.set(cu_seqlens_q=starts, lengths_kv=seqused_k)
        self._schedule.build(self._lengths.binding, self._stream(), sequences, address, shared)

    def check(self, block_table: torch.Tensor | None = None, k_cache: torch.Tensor | None = None) -> None:
        """Looks at the lengths of the last build, and with `block_table` and `k_cache` at the pages of its sequences,
        which nothing else does. Waits for the stream: to find errors.
        Raises BindingError with the first number that is beyond max_seqlen_q, max_seqlen_k or the cache."""
        if not self._built:
            raise BindingError("the schedule was not built yet")
        if (block_table is None) != (k_cache is None):
            raise BindingError("block_table and k_cache must be given together")
        if block_table is not None and k_cache is not None:
            self._check_pages(block_table, k_cache)
        placed = Placed(self._executable, self._device, 0 if block_table is None else step_of_table(block_table))
        given = dict(zip(("cu_seqlens_q", "lengths_kv"), self._built))
        if block_table is None or k_cache is None:
            placed.scratch.zero_()  # a table of page 0
        else:
            given["page_table"] = block_table
            placed.set_pages(len(k_cache))
        lengths = _Lengths(self._executable, placed, self._params, self._stream(), self._schedule)
        lengths.set(**given)
        lengths.binding.check(self._stream())

    def _check_pages(self, block_table: torch.Tensor, k_cache: torch.Tensor) -> None:
        page, most = self._key.page, self._key.keys
        least = (len(self._built[1]), -(-most // page))
        if block_table.dtype != torch.int32 or block_table.device != self._device or block_table.dim() != 2:
            raise BindingError(f"block_table must be i32 [B, pages] on {self._device}")
        if len(block_table) < least[0] or block_table.shape[1] < least[1]:
            raise BindingError(f"block_table is {list(block_table.shape)}, but the check reads {list(least)} of it")
        if k_cache.dim() != 4 or k_cache.shape[1] != page:
            raise BindingError(f"k_cache must have pages of {page}, as the schedule has")

    def flags(self) -> int:
        """What did not fit at the last build, a sum: 1: there was no memory for all parts, so that some rows were not
        divided (results are right, but with split_keys depend on others), 2: a length was beyond max_seqlen_q or
        max_seqlen_k, 4: sequences read shared keys themselves (results are right). Waits for the stream."""
        return self._schedule.flags(self._stream())

    def _stream(self) -> int:
        return varlen_calls.stream_of(self._index)

    def _check_lengths(self, starts: torch.Tensor | None, lengths: torch.Tensor) -> None:
        check_tensors({"seqused_k": lengths, "cu_seqlens_q": starts}, self._device)
        check_shape("seqused_k", lengths, ("B",))
        check_numbers("seqused_k", lengths)
        self._check_count("seqused_k", len(lengths))
        if starts is not None:
            check_shape("cu_seqlens_q", starts, (len(lengths) + 1,))
            check_numbers("cu_seqlens_q", starts)

    def _check_count(self, name: str, count: int) -> None:
        if count > self._key.sequences:
            raise BindingError(f"{name} has {count} sequences, but the schedule is for {self._key.sequences}",
                               ["make it with a block_table of as many rows"])

    @staticmethod
    def _count(device: torch.device, given: int | torch.Tensor | None, shared_keys: int | None,
               count: int) -> tuple[int, int | None, int]:
        """A number of sequences, the address of one, and a number of shared keys, as the library takes them."""
        if shared_keys is not None and (not isinstance(shared_keys, int) or shared_keys < 0):
            raise BindingError(f"shared_keys is {shared_keys!r}; it must be a number, 0 or more, or None")
        shared = -1 if shared_keys is None else shared_keys
        if not isinstance(given, torch.Tensor):
            if shared_keys is None:
                raise BindingError("shared_keys is None, which needs a tensor num_sequences that has it")
            number = count if given is None else given
            if not isinstance(number, int) or not 0 <= number <= count:
                raise BindingError(f"num_sequences is {number!r}, but must be 0 to {count}, as seqused_k has them")
            return number, None, shared
        check_tensors({"num_sequences": given}, device)
        elements = 2 if shared_keys is None else 1
        if given.dtype != torch.int32 or given.numel() != elements or not given.is_contiguous():
            raise BindingError(f"num_sequences is {given.dtype} of shape {list(given.shape)}; it must be torch.int32 of"
                               f" {'two adjacent elements' if elements == 2 else 'one element'}")
        return -1, given.data_ptr(), shared

    def _check_bounds(self, rows: int, keys: int) -> None:
        if rows > self._key.rows:
            raise BindingError(f"max_seqlen_q is {rows}, but the schedule is for {self._key.rows}")
        if keys > self._most_keys:
            raise BindingError(f"max_seqlen_k is {keys}, but the schedule is for {self._most_keys}")

    def _call(self, tensors: Tensors, options: Options, stream: int) -> BoundCall:
        """A call of checked tensors. Raises BindingError with what the schedule is not for."""
        ours, columns = self._key, tensors.block_table.shape[1]
        self._check_count("block_table", len(tensors.block_table))
        key, params = key_of(tensors, options, Capacity(ours.sequences, ours.rows, ours.keys))
        differ = [f"{words} is {getattr(key, name)!r}, but the schedule's {getattr(ours, name)!r}"
                  for name, words in _WORDS.items() if getattr(key, name) != getattr(ours, name)]
        if not differ and params != self._params:
            differ = [f"window_size has bounds {params}, but the schedule's {self._params}"]
        if not differ and columns < ours.columns:
            differ = [f"block_table has {columns} pages of a sequence, but the schedule's {ours.columns}"]
        if differ:
            raise BindingError(f"the schedule was made for another call: {differ[0]}", differ[1:])
        return make_call(self._executable, key, params, tensors, self._schedule, False, stream)

    def _repeat(self, kept: Mapping[tuple[Any, ...], Sequence[BoundCall]]) -> None:
        """Says which calls there are, by their settings."""
        self._repeated.set(
            (Fit((scale, causal, (left, right), softcap), -ANY_NUMBER, self._key.rows, -ANY_NUMBER, self._most_keys,
                 None), call)
            for (scale, causal, left, right, softcap), calls in kept.items() for call in calls)


class _Lengths:
    """A binding with the lengths of a batch, of which nothing else is read."""

    def __init__(self, executable: _libattn.Executable, placed: Placed, params: Sequence[float], stream: int,
                 schedule: _libattn.Schedule | None = None):
        self.binding = bind_placed(executable, placed, params, stream, schedule)
        self.places = {name: place for place, name in enumerate(placed)}
        self.addresses = [address for address, *_ in placed.values()]
        self._scratch = placed.scratch

    def set(self, **tensors: torch.Tensor) -> None:
        """Gives tensors by the plan's names."""
        for name, tensor in tensors.items():
            self.addresses[self.places[name]] = tensor.data_ptr()
        self.binding.set_addresses(self.addresses, checked=True)  # by `check_tensors`
