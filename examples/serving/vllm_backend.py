"""An attention backend for vLLM (V1, `vllm.v1.attention`) outside of its tree: attention over its paged cache, and of
encoders, by attnc's kernels, on an H100 or H200.

    pip install .                      # attn, and this file somewhere in PYTHONPATH
    import vllm_backend; vllm_backend.register()
    vllm.LLM(model, attention_config={"backend": "CUSTOM"})

`register` is also what an entry point of the group `vllm.general_plugins` may name, so that each process of vLLM calls
it. CUDA graphs may hold everything: prefills, decodes, drafts in a chain and mixed batches. A long prefix that all
sequences of a batch share is read once. With VLLM_BATCH_INVARIANT a sequence has the same bits whatever else is in the
batch.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Callable

import attn
import attn.torch
import torch
from vllm import envs
from vllm.config import get_current_vllm_config_or_none
from vllm.distributed.parallel_state import get_dcp_group
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
    MultipleOf,
)
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
from vllm.v1.attention.backends.utils import get_dcp_local_seq_lens, get_kv_cache_layout

_split_keys = 16384
_LEAST_SHARED, _LEAST_SHARING = 256, 8  # keys that sequences share, and how many these are
_ENCODERS = (AttentionType.ENCODER, AttentionType.ENCODER_ONLY)


def register(split_keys: int = 16384) -> None:
    """Makes this the backend `CUSTOM`. `split_keys`: with VLLM_BATCH_INVARIANT, how many keys of a sequence are one
    part, which is twice as many, four times, .. where there are too many; 0: sequences are not divided, which takes no
    memory."""
    global _split_keys
    _split_keys = split_keys
    register_backend(AttentionBackendEnum.CUSTOM, f"{__name__}.AttncBackend")


class AttncBackend(AttentionBackend):
    """What the backend takes, and how its cache lies in memory."""

    accept_output_buffer = True
    forward_includes_kv_cache_update = False
    supported_dtypes = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16"]

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[AttncImpl]:
        return AttncImpl

    @staticmethod
    def get_builder_cls() -> type[AttncMetadataBuilder]:
        return AttncMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int | MultipleOf]:
        return [MultipleOf(16)]

    @staticmethod
    def get_kv_cache_shape(num_blocks: int, block_size: int, num_kv_heads: int, head_size: int,
                           cache_dtype_str: str = "auto") -> tuple[int, ...]:
        return 2, num_blocks, block_size, num_kv_heads, head_size

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension: bool = False) -> tuple[int, ...]:
        """Any order will do for the kernels. With layers, blocks are outermost, so that a block of all layers can be
        moved at once."""
        heads_outside = get_kv_cache_layout() == "HND"
        if include_num_layers_dimension:
            return (2, 4, 0, 1, 3, 5) if heads_outside else (2, 0, 1, 3, 4, 5)
        return (0, 1, 3, 2, 4) if heads_outside else (0, 1, 2, 3, 4)

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return head_size % 8 == 0 and head_size <= 256

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        return capability.major == 9

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        return attn_type in (AttentionType.DECODER, AttentionType.ENCODER_DECODER, *_ENCODERS)

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True


@dataclass
class AttncMetadata:
    """A batch, for all layers. Tensors are vLLM's, or the builder's, which graphs read anew at each replay.

    `context_lens`, `local_lens`: with several ranks for a context, the keys that this one has of the tokens before
    those of the batch, and of all; else None. `batch`: the same in copies with other block tables."""

    num_actual_tokens: int
    max_query_len: int
    query_start_loc: torch.Tensor  # i32 [sequences + 1]
    seq_lens: torch.Tensor  # i32 [sequences]
    block_table: torch.Tensor  # i32 [sequences, blocks]
    slot_mapping: torch.Tensor
    causal: bool
    schedules: Schedules
    shared_keys: int = 0  # that all sequences begin with
    context_lens: torch.Tensor | None = None
    local_lens: torch.Tensor | None = None
    batch: object = field(default_factory=object)


class Rows:
    """The keys and values of a batch's own tokens, which are in no cache: in pages of one token, for all layers."""

    def __init__(self, sequences: int, most: int, device: torch.device):
        self.most = most
        self._numbers = torch.arange(most, dtype=torch.int32, device=device)
        self._slots = torch.arange(most, device=device)
        self._lengths = torch.zeros(sequences, dtype=torch.int32, device=device)
        self._table = torch.zeros(sequences, most, dtype=torch.int32, device=device)
        self._pages: dict[tuple[Any, ...], tuple[torch.Tensor, torch.Tensor]] = {}

    def set(self, starts: torch.Tensor) -> None:
        """Says where sequences begin, i32 [sequences + 1]."""
        count = len(starts) - 1
        torch.sub(starts[1:], starts[:-1], out=self._lengths[:count])
        torch.add(starts[:-1, None], self._numbers, out=self._table[:count])

    def of(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Lengths and pages of so many sequences."""
        return self._lengths[:count], self._table[:count]

    def pages(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Caches with these rows [tokens, Hkv, D], until those of the next layer."""
        kind = (key.dtype, key.shape[1:], value.shape[1:])
        if kind not in self._pages:
            self._pages[kind] = tuple(x.new_zeros((self.most, 1, *x.shape[1:])) for x in (key, value))
        caches = self._pages[kind]
        attn.torch.append(key, value, *caches, self._slots[:len(key)])
        return caches


class Schedules:
    """Schedules of the layers of one cache group, for each kind of layer and of keys: one for decodes and one for other
    batches, or if `split_keys` is not None, one for both. All that fit a batch are built: a graph may hold calls with
    any.

    `split_keys`: keys of a part, so that bits do not depend on the batch; 0: sequences are not divided.
    Keys are those of the "cache", of an "encoder" in a cache, those that a rank has of a "context", which is before the
    batch's tokens, or with these ("local"), and the batch's "rows", which are in no cache."""

    def __init__(self, sequences: int, decode_rows: int, most_rows: int, most_keys: int, device: torch.device,
                 split_keys: int | None = None):
        self._sequences = sequences
        self._capacities = (most_rows,) if split_keys is not None else (decode_rows, most_rows)
        self._most_keys, self._device, self._split_keys = most_keys, device, split_keys
        self._made: dict[tuple[Any, ...], attn.torch.Schedule] = {}
        self._batch: object = None
        self._rows: Rows | None = None

    @property
    def invariant(self) -> bool:
        return self._split_keys is not None

    def build(self, batch: AttncMetadata) -> None:
        """Enqueues what makes those that there are."""
        self._batch = batch.batch
        if self._rows is not None:
            self._rows.set(batch.query_start_loc)
        for (rows, keys, *_), schedule in self._made.items():
            if batch.max_query_len <= rows:
                self._build(schedule, keys, batch)

    def rows(self, batch: AttncMetadata) -> Rows:
        """Those of a batch, which is then also the last one built."""
        self._require(batch)
        if self._rows is None:
            self._rows = Rows(self._sequences, self._capacities[-1], self._device)
            self._rows.set(batch.query_start_loc)
        return self._rows

    def arguments(self, keys: str, kind: tuple[Any, ...], batch: AttncMetadata, q: torch.Tensor, k_cache: torch.Tensor,
                  v_cache: torch.Tensor, **options: Any) -> dict[str, Any]:
        """The arguments of varlen_attention that say what a batch is, and the schedule of layers of a kind. It is made
        first if there is none, which compiles kernels, in one of the runs before graphs are captured."""
        self._require(batch)
        most_rows = next(rows for rows in self._capacities if batch.max_query_len <= rows)
        lengths, table = self._lengths(keys, batch), self._table(keys, batch)
        most_keys = self._most_keys_of(keys, table, k_cache)
        name = (most_rows, keys, kind, k_cache.shape[1:], table.shape[1])
        schedule = self._made.get(name)
        if schedule is None:
            example = table.new_empty((self._sequences, table.shape[1]))
            schedule = self._make(q, k_cache, v_cache, example, most_rows, most_keys, options)
            self._build(schedule, keys, batch)
            self._made[name] = schedule
        return {"cu_seqlens_q": batch.query_start_loc, "seqused_k": lengths, "block_table": table,
                "max_seqlen_q": most_rows, "max_seqlen_k": most_keys, "schedule": schedule}

    def _build(self, schedule: attn.torch.Schedule, keys: str, batch: AttncMetadata) -> None:
        schedule.build(batch.query_start_loc, self._lengths(keys, batch),
                       shared_keys=batch.shared_keys if keys == "cache" else 0)

    def _require(self, batch: AttncMetadata) -> None:
        if self._batch is not batch.batch:  # another one was built since
            self.build(batch)

    def _lengths(self, keys: str, batch: AttncMetadata) -> torch.Tensor:
        if keys == "rows":
            return self.rows(batch).of(len(batch.seq_lens))[0]
        return {"context": batch.context_lens, "local": batch.local_lens}.get(keys, batch.seq_lens)

    def _table(self, keys: str, batch: AttncMetadata) -> torch.Tensor:
        return self.rows(batch).of(len(batch.seq_lens))[1] if keys == "rows" else batch.block_table

    def _most_keys_of(self, keys: str, table: torch.Tensor, k_cache: torch.Tensor) -> int:
        if keys == "rows":
            return self._capacities[-1]
        # An encoder may have more keys than the decoder has positions: its table has room for them.
        return max(self._most_keys, table.shape[1] * k_cache.shape[1] if keys == "encoder" else 0)

    def _make(self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, table: torch.Tensor, most_rows: int,
              most_keys: int, options: dict[str, Any]) -> attn.torch.Schedule:
        def made(**parts: int) -> attn.torch.Schedule:
            return attn.torch.Schedule(q, k_cache, v_cache, table, max_seqlen_q=most_rows, max_seqlen_k=most_keys,
                                       **parts, **options)

        if not self.invariant:
            return made()
        split = self._split_keys
        # Sequences may share pages, so all may be as long as they can be.
        while 0 < split < most_keys:
            try:
                return made(split_keys=split, capacity_rows=most_rows, capacity_keys=self._sequences * most_keys)
            except attn.ArgumentError:  # more parts than a schedule has
                split *= 2
        return made(max_parts=1)


class AttncMetadataBuilder(AttentionMetadataBuilder):
    """Makes the metadata of each batch, and builds its schedules."""

    _cudagraph_support = AttentionCGSupport.ALWAYS
    supports_update_block_table = True

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        scheduler, speculative = vllm_config.scheduler_config, vllm_config.speculative_config
        drafts = 0 if speculative is None else speculative.num_speculative_tokens or 0
        if getattr(speculative, "parallel_drafting", False):
            drafts *= 2
        self._schedules = Schedules(
            sequences=scheduler.max_num_seqs,
            decode_rows=1 + drafts,
            most_rows=max(scheduler.max_num_batched_tokens, 1 + drafts),
            most_keys=vllm_config.model_config.max_model_len + drafts,
            device=device,
            split_keys=_split_keys if envs.VLLM_BATCH_INVARIANT else None,
        )
        parallel = vllm_config.parallel_config
        self._ranks = parallel.decode_context_parallel_size
        if self._ranks > 1:
            self._rank = get_dcp_group().rank_in_group
            self._interleave = parallel.cp_kv_cache_interleave_size
            self._context, self._local = (
                torch.zeros(scheduler.max_num_seqs, dtype=torch.int32, device=device) for _ in range(2))

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> AttncMetadata:
        """`common_prefix_len` is 0 where `use_cascade_attention` says no."""
        common = common_attn_metadata
        if not isinstance(common.causal, bool):
            raise NotImplementedError("sequences of which some are causal and some are not are not in this backend")
        metadata = AttncMetadata(
            num_actual_tokens=common.num_actual_tokens,
            max_query_len=common.max_query_len,
            query_start_loc=common.query_start_loc,
            seq_lens=common.seq_lens,
            block_table=common.block_table_tensor,
            slot_mapping=common.slot_mapping,
            causal=common.causal,
            schedules=self._schedules,
            shared_keys=common_prefix_len,
        )
        if self._ranks > 1:
            own = common.seq_lens - common.query_start_loc.diff()
            metadata.context_lens = self._of_rank(own, self._context)
            metadata.local_lens = self._of_rank(common.seq_lens, self._local)
        self._schedules.build(metadata)
        return metadata

    def update_block_table(self, metadata: AttncMetadata, blk_table: torch.Tensor,
                           slot_mapping: torch.Tensor) -> AttncMetadata:
        """The same batch in another cache group. Its schedules are those that there are: they read no pages."""
        other = copy.copy(metadata)
        other.block_table, other.slot_mapping = blk_table, slot_mapping
        return other

    def use_cascade_attention(self, common_prefix_len: int, query_lens: Any, num_query_heads: int, num_kv_heads: int,
                              use_alibi: bool, use_sliding_window: bool, use_local_attention: bool, *args: Any,
                              **kwargs: Any) -> bool:
        """Whether keys that all sequences begin with are read once. What is shared changes the order of sums; with
        slopes, scores of a key differ between sequences, and windows hide the first keys. Several ranks for a context
        have parts of them."""
        if use_alibi or use_sliding_window or use_local_attention or self._schedules.invariant or self._ranks > 1:
            return False
        return common_prefix_len >= _LEAST_SHARED and len(query_lens) >= _LEAST_SHARING

    def _of_rank(self, lengths: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """How many of these keys are in the cache of this rank, in memory that graphs read."""
        memory[:len(lengths)] = get_dcp_local_seq_lens(lengths, self._ranks, self._rank, self._interleave)
        return memory[:len(lengths)]


def _merge_of_ranks() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """The merge by vLLM of o [tokens, heads of all ranks, D] and lse [tokens, heads of all ranks] to a rank's heads."""
    config = get_current_vllm_config_or_none()
    if config is not None and getattr(config.parallel_config, "dcp_comm_backend", "") == "a2a":
        from vllm.v1.attention.ops.dcp_alltoall import dcp_a2a_lse_reduce

        return dcp_a2a_lse_reduce
    from vllm.v1.attention.ops.common import cp_lse_ag_out_rs

    return cp_lse_ag_out_rs


class AttncImpl(AttentionImpl):
    """The attention of a layer."""

    can_return_lse_for_decode = True

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int | None = None,
                 alibi_slopes: list[float] | None = None, sliding_window: int | None = None,
                 kv_cache_dtype: str = "auto", logits_soft_cap: float | None = None,
                 attn_type: str = AttentionType.DECODER, kv_sharing_target_layer_name: str | None = None,
                 sinks: torch.Tensor | None = None):
        if kv_cache_dtype not in AttncBackend.supported_kv_cache_dtypes:
            raise NotImplementedError(f"a cache of {kv_cache_dtype}: attn.torch.append writes it, but"
                                      " varlen_attention reads the type of q alone")
        if self.dcp_world_size > 1 and (alibi_slopes is not None or sliding_window is not None):
            raise NotImplementedError("slopes and windows are of positions, which the keys of one rank for a context do"
                                      " not have next to each other: use decode_context_parallel_size=1")
        if self.dcp_world_size > 1 and attn_type == AttentionType.ENCODER_DECODER:
            raise NotImplementedError("the keys of an encoder are not divided among ranks for a context")
        if self.dcp_world_size > 1 and num_kv_heads != 1:
            raise NotImplementedError(f"ranks for a context share one head of keys, not {num_kv_heads}: heads of q that"
                                      " are gathered would be those of other heads of k")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype, self.attn_type = kv_cache_dtype, attn_type
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        # vLLM counts the row's own key, as FlashAttention does not.
        left = -1 if sliding_window is None else sliding_window - 1
        self._window = (left, left if attn_type in _ENCODERS or left < 0 else 0)
        self._softcap = float(logits_soft_cap or 0)
        self._slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32)
        self.sinks = sinks
        self._merge_ranks = _merge_of_ranks() if self.dcp_world_size > 1 else None

    def do_kv_cache_update(self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
                           slot_mapping: torch.Tensor) -> None:
        """Writes new keys and values [tokens or more, Hkv, D] to the slots of the batch's tokens."""
        if kv_cache.numel() == 0 or self.kv_sharing_target_layer_name is not None or self.attn_type in _ENCODERS:
            return
        rows = len(slot_mapping)
        attn.torch.append(key[:rows], value[:rows], *kv_cache.unbind(0), slot_mapping)

    def forward(self, layer: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                kv_cache: torch.Tensor, attn_metadata: AttncMetadata | None, output: torch.Tensor,
                output_scale: torch.Tensor | None = None,
                output_block_scale: torch.Tensor | None = None) -> torch.Tensor:
        """query: [tokens or more, Hq, D]; key, value: as many rows, which are read for encoders and with several ranks
        for a context; kv_cache as `get_kv_cache_shape` says. Writes `output`, and returns it."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("outputs of 8 bits are not in this backend")
        if attn_metadata is None:  # the run that measures memory
            return output.fill_(0)
        rows = attn_metadata.num_actual_tokens
        q, out = query[:rows], output[:rows].view(rows, self.num_heads, self.head_size)
        if self.attn_type in _ENCODERS:
            self._attend("rows", attn_metadata, q, self._own(attn_metadata, key, value), out, causal=False)
        elif self.dcp_world_size > 1:
            self._attend_with_ranks(attn_metadata, q, key, value, kv_cache.unbind(0), out)
        else:
            keys = "encoder" if self.attn_type == AttentionType.ENCODER_DECODER else "cache"
            self._attend(keys, attn_metadata, q, kv_cache.unbind(0), out)
        return output

    def _own(self, batch: AttncMetadata, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = batch.num_actual_tokens
        return batch.schedules.rows(batch).pages(key[:rows], value[:rows])

    def _attend_with_ranks(self, batch: AttncMetadata, q: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                           caches: tuple[torch.Tensor, torch.Tensor], out: torch.Tensor) -> None:
        """The keys of a context are divided among ranks of a group, which have different heads of q, and the same ones
        of k: each attends with the q of all to its own keys, and vLLM merges these by lse."""
        group = get_dcp_group()
        everywhere = group.all_gather(q.contiguous(), dim=1)  # [tokens, Hq ranks, D]
        partial = torch.empty_like(everywhere)
        # A single row sees all keys: those in caches have its own among them. Sinks are in one of the parts alone.
        alone = batch.max_query_len == 1 and self.sinks is None and not batch.schedules.invariant
        o, lse = self._attend("local" if alone else "context", batch, everywhere, caches, partial, causal=False,
                              s_aux=None, return_lse=True)
        o, lse = self._merge_ranks(o, lse, group, return_lse=True)
        if alone:
            out.copy_(o)
            return
        o_own, lse_own = self._attend("rows", batch, q, self._own(batch, key, value), torch.empty_like(out),
                                      return_lse=True)
        attn.torch.merge(o, lse.contiguous(), o_own, lse_own, out=out)

    def _attend(self, keys: str, batch: AttncMetadata, q: torch.Tensor, caches: tuple[torch.Tensor, torch.Tensor],
                out: torch.Tensor, **others: Any) -> Any:
        """Attention to keys of a batch. Returns out, or it and lse [tokens, heads]."""
        if self._slopes is not None and self._slopes.device != q.device:
            self._slopes = self._slopes.to(q.device)
        options = {"softmax_scale": self.scale, "causal": batch.causal, "window_size": self._window,
                   "softcap": self._softcap, "alibi_slopes": self._slopes, "s_aux": self.sinks, **others}
        sinks = options["s_aux"]
        kind = (self.scale, options["causal"], self._window, self._softcap, self._slopes is None,
                None if sinks is None else sinks.dtype, q.shape[1], options.get("return_lse"))
        arguments = batch.schedules.arguments(keys, kind, batch, q, *caches, **options)
        return attn.torch.varlen_attention(q, *caches, out=out, **arguments, **options)
