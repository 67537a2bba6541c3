"""An attention backend for vLLM (V1, `vllm.v1.attention`) outside of its tree: decoder attention over its paged cache
by attnc's kernels, on an H100 or H200.

    pip install .                      # attn, and this file somewhere in PYTHONPATH
    import vllm_backend; vllm_backend.register()
    vllm.LLM(model, attention_config={"backend": "CUSTOM"})

`register` is also what an entry point of the group `vllm.general_plugins` may name, so that each process of vLLM calls
it. CUDA graphs may hold everything: prefills, decodes and mixed batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import attn.torch
import torch
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
    MultipleOf,
)
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
from vllm.v1.attention.backends.utils import get_kv_cache_layout


def register() -> None:
    """Makes this the backend `CUSTOM`."""
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
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True


@dataclass
class AttncMetadata:
    """A batch, for all layers. Tensors are vLLM's, which graphs read anew at each replay."""

    num_actual_tokens: int
    max_query_len: int
    query_start_loc: torch.Tensor  # i32 [sequences + 1]
    seq_lens: torch.Tensor  # i32 [sequences]
    block_table: torch.Tensor  # i32 [sequences, blocks]
    slot_mapping: torch.Tensor
    causal: bool
    schedules: Schedules


class Schedules:
    """Schedules of the layers of one cache group: one for decodes and one for other batches, for each kind of layer.
    All that fit a batch are built: a graph may hold calls with either."""

    def __init__(self, sequences: int, decode_rows: int, most_rows: int, most_keys: int):
        self._sequences = sequences
        self._rows = (decode_rows, most_rows)
        self.most_keys = most_keys
        self._made: dict[tuple[Any, ...], attn.torch.Schedule] = {}
        self._batch: AttncMetadata | None = None

    def build(self, batch: AttncMetadata) -> None:
        """Enqueues what makes those that there are."""
        self._batch = batch
        for (rows, _), schedule in self._made.items():
            if batch.max_query_len <= rows:
                schedule.build(batch.query_start_loc, batch.seq_lens)

    def rows_of(self, batch: AttncMetadata) -> int:
        """The most rows of a sequence of its schedule."""
        return self._rows[0] if batch.max_query_len <= self._rows[0] else self._rows[1]

    def of(self, kind: tuple[Any, ...], batch: AttncMetadata, q: torch.Tensor, k_cache: torch.Tensor,
           v_cache: torch.Tensor, **options: Any) -> attn.torch.Schedule:
        """That of layers of a kind for a batch: made first if there is none, which compiles kernels, in one of the
        runs before graphs are captured."""
        if self._batch is not batch:  # another one was built since
            self.build(batch)
        rows = self.rows_of(batch)
        schedule = self._made.get((rows, kind))
        if schedule is None:
            table = batch.block_table.new_empty((self._sequences, batch.block_table.shape[1]))
            schedule = attn.torch.Schedule(q, k_cache, v_cache, table, max_seqlen_q=rows,
                                           max_seqlen_k=self.most_keys, **options)
            schedule.build(batch.query_start_loc, batch.seq_lens)
            self._made[rows, kind] = schedule
        return schedule


class AttncMetadataBuilder(AttentionMetadataBuilder):
    """Makes the metadata of each batch, and builds its schedules."""

    _cudagraph_support = AttentionCGSupport.ALWAYS

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        scheduler, speculative = vllm_config.scheduler_config, vllm_config.speculative_config
        drafts = 0 if speculative is None else speculative.num_speculative_tokens or 0
        self._schedules = Schedules(
            sequences=scheduler.max_num_seqs,
            decode_rows=1 + drafts,
            most_rows=max(scheduler.max_num_batched_tokens, 1 + drafts),
            most_keys=vllm_config.model_config.max_model_len + drafts,
        )

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> AttncMetadata:
        common = common_attn_metadata
        metadata = AttncMetadata(
            num_actual_tokens=common.num_actual_tokens,
            max_query_len=common.max_query_len,
            query_start_loc=common.query_start_loc,
            seq_lens=common.seq_lens,
            block_table=common.block_table_tensor,
            slot_mapping=common.slot_mapping,
            causal=bool(common.causal),
            schedules=self._schedules,
        )
        self._schedules.build(metadata)
        return metadata


class AttncImpl(AttentionImpl):
    """The attention of a layer."""

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int | None = None,
                 alibi_slopes: list[float] | None = None, sliding_window: int | None = None,
                 kv_cache_dtype: str = "auto", logits_soft_cap: float | None = None,
                 attn_type: str = AttentionType.DECODER, kv_sharing_target_layer_name: str | None = None,
                 sinks: torch.Tensor | None = None):
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"the attention of type {attn_type} has no paged cache: use another backend")
        if self.dcp_world_size > 1:
            raise NotImplementedError("decode context parallelism is not in this backend: it would merge by lse")
        if kv_cache_dtype not in AttncBackend.supported_kv_cache_dtypes:
            raise NotImplementedError(f"a cache of {kv_cache_dtype}: attn.torch.append writes it, but"
                                      " varlen_attention reads the type of q alone")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        # vLLM counts the row's own key, as FlashAttention does not.
        self._window = (-1, -1) if sliding_window is None else (sliding_window - 1, 0)
        self._softcap = float(logits_soft_cap or 0)
        self._slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32)
        self.sinks = sinks

    def do_kv_cache_update(self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor,
                           slot_mapping: torch.Tensor) -> None:
        """Writes new keys and values [tokens or more, Hkv, D] to the slots of the batch's tokens."""
        if kv_cache.numel() == 0 or self.kv_sharing_target_layer_name is not None:
            return
        rows = len(slot_mapping)
        attn.torch.append(key[:rows], value[:rows], *kv_cache.unbind(0), slot_mapping)

    def forward(self, layer: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                kv_cache: torch.Tensor, attn_metadata: AttncMetadata | None, output: torch.Tensor,
                output_scale: torch.Tensor | None = None,
                output_block_scale: torch.Tensor | None = None) -> torch.Tensor:
        """query: [tokens or more, Hq, D]; kv_cache as `get_kv_cache_shape` says. Writes `output`, and returns it."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("outputs of 8 bits are not in this backend")
        if attn_metadata is None:  # the run that measures memory
            return output.fill_(0)
        rows = attn_metadata.num_actual_tokens
        k_cache, v_cache = kv_cache.unbind(0)
        self._on_device(query.device)
        options = {"softmax_scale": self.scale, "causal": attn_metadata.causal, "window_size": self._window,
                   "softcap": self._softcap, "alibi_slopes": self._slopes, "s_aux": self.sinks}
        kind = (self.scale, attn_metadata.causal, self._window, self._softcap, self._slopes is None,
                None if self.sinks is None else self.sinks.dtype, self.num_heads, k_cache.shape[1:])
        schedules, q = attn_metadata.schedules, query[:rows]
        attn.torch.varlen_attention(
            q, k_cache, v_cache, cu_seqlens_q=attn_metadata.query_start_loc, seqused_k=attn_metadata.seq_lens,
            block_table=attn_metadata.block_table, max_seqlen_q=schedules.rows_of(attn_metadata),
            max_seqlen_k=schedules.most_keys, out=output[:rows].view(rows, self.num_heads, self.head_size),
            schedule=schedules.of(kind, attn_metadata, q, k_cache, v_cache, **options), **options)
        return output

    def _on_device(self, device: torch.device) -> None:
        if self._slopes is not None and self._slopes.device != device:
            self._slopes = self._slopes.to(device)
