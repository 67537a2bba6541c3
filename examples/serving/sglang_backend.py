"""An attention backend for SGLang outside of its tree: decoder attention over its cache, of pages of any size, by
attnc's kernels, on an H100 or H200. Imported before the server starts:

    import sglang_backend; sglang_backend.register()
    sglang.Engine(model_path=.., attention_backend="attnc")

Decodes and the verification of drafts in a chain are in CUDA graphs. With --enable-deterministic-inference a sequence
has the same bits whatever else is in the batch. What is refused: drafts in a tree, whose mask is not in this backend
(rows see other keys than a band); MLA, whose cache has one row of latent elements for all heads; caches
with other slots for layers with windows; chunks of positions; models with cross attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import attn.torch
import torch
from sglang.srt.layers.attention.attention_registry import register_attention_backend
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend


SPLIT_KEYS = 16384  # with --enable-deterministic-inference, keys of a part of a sequence


def register() -> None:
    """Makes `attnc` a name of --attention-backend."""
    register_attention_backend("attnc")(AttncBackend)


@dataclass
class Batch:
    """A batch, for all layers. `rows`: the most of a sequence."""

    rows: int
    starts: torch.Tensor  # i32 [sequences + 1]: where the rows of each begin
    lengths: torch.Tensor  # i32 [sequences], keys with those of the rows
    table: torch.Tensor  # i32 [sequences, pages of a sequence]


class AttncBackend(AttentionBackend):
    """Batches of `model_runner`'s requests. What is made for a graph is kept, and filled before each replay."""

    def __init__(self, model_runner: Any):
        super().__init__()
        _refuse(model_runner)
        arguments = model_runner.server_args
        self._page = model_runner.page_size
        self._slots = model_runner.req_to_token_pool.req_to_token  # i32 [requests, tokens]
        self._most_keys = self._slots.shape[1]
        self._columns = -(-self._most_keys // self._page)
        self._drafts = getattr(arguments, "speculative_num_draft_tokens", None) or 0
        chunk = arguments.chunked_prefill_size or -1
        self._most_rows = max(chunk if chunk > 0 else self._most_keys, self._drafts)
        self._sequences = len(self._slots)
        self._invariant = bool(getattr(arguments, "enable_deterministic_inference", False))
        self._device = self._slots.device
        self._first_tokens = torch.arange(self._columns, device=self._device) * self._page
        self._memory: Batch | None = None  # that graphs read
        self._schedules: dict[tuple[Any, ...], attn.torch.Schedule] = {}
        self._batch: Batch | None = None

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Before the layers of a batch that is in no graph."""
        mode, requests = forward_batch.forward_mode, forward_batch.req_pool_indices
        if mode.is_decode_or_idle() or mode.is_target_verify():
            rows = self._rows_of(mode)
            starts = self._starts(len(requests), rows)
            lengths = forward_batch.seq_lens + (rows if mode.is_target_verify() else 0)
        else:
            each = forward_batch.extend_seq_lens
            starts = torch.nn.functional.pad(each.cumsum(0), (1, 0)).int()
            rows, lengths = max(forward_batch.extend_seq_lens_cpu, default=0), forward_batch.seq_lens
        self._begin(Batch(rows, starts, lengths.int(), self._pages_of(requests)))

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int, *_: Any) -> None:
        """Memory that all graphs read."""
        def numbers(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=self._device)

        self._memory = Batch(0, numbers(max_bs + 1), numbers(max_bs), numbers(max_bs, self._columns))

    def init_forward_metadata_capture_cuda_graph(self, bs: int, num_tokens: int, req_pool_indices: torch.Tensor,
                                                 seq_lens: torch.Tensor, encoder_lens: Any, forward_mode: Any,
                                                 spec_info: Any) -> None:
        """Before a graph of `bs` requests is captured, and before the runs that precede it."""
        self._fill(bs, req_pool_indices, seq_lens, forward_mode)

    def init_forward_metadata_replay_cuda_graph(self, bs: int, req_pool_indices: torch.Tensor,
                                                seq_lens: torch.Tensor, seq_lens_sum: int, encoder_lens: Any,
                                                forward_mode: Any, spec_info: Any, seq_lens_cpu: Any,
                                                *_: Any) -> None:
        """Before a graph of `bs` requests is replayed: schedules are built outside of it."""
        self._fill(bs, req_pool_indices, seq_lens, forward_mode)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def forward_decode(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: Any, forward_batch: Any,
                       save_kv_cache: bool = True, **kwargs: Any) -> torch.Tensor:
        """q: [tokens, Hq D]; k, v: [tokens, Hkv D] or None, whose slots are `out_cache_loc`. Returns
        [tokens, Hq Dv]."""
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)

    def forward_extend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: Any, forward_batch: Any,
                       save_kv_cache: bool = True, **kwargs: Any) -> torch.Tensor:
        """The same for several rows of each sequence."""
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, **kwargs)

    def support_triton(self) -> bool:
        return False

    def _rows_of(self, mode: Any) -> int:
        return self._drafts if mode.is_target_verify() else 1

    def _starts(self, count: int, rows: int) -> torch.Tensor:
        return torch.arange(count + 1, dtype=torch.int32, device=self._device) * rows

    def _pages_of(self, requests: torch.Tensor) -> torch.Tensor:
        """The pages of requests [sequences, pages]: those of their slots at each page's first token."""
        return self._slots[requests[:, None], self._first_tokens].div(self._page, rounding_mode="floor").int()

    def _fill(self, bs: int, requests: torch.Tensor, lengths: torch.Tensor, mode: Any) -> None:
        if not (mode.is_decode_or_idle() or mode.is_target_verify()):
            raise NotImplementedError(f"graphs of {mode} are not in this backend")
        rows, memory = self._rows_of(mode), self._memory
        batch = Batch(rows, memory.starts[:bs + 1], memory.lengths[:bs], memory.table[:bs])
        batch.starts.copy_(self._starts(bs, rows))
        batch.lengths.copy_(lengths[:bs] + (rows if mode.is_target_verify() else 0))
        batch.table.copy_(self._pages_of(requests[:bs]))
        self._begin(batch)

    def _begin(self, batch: Batch) -> None:
        """Builds the schedules for it that there are: a graph holds calls with one of them."""
        self._batch = batch
        for (rows, *_), schedule in self._schedules.items():
            if rows == self._capacity(batch):
                schedule.build(batch.starts, batch.lengths)

    def _capacity(self, batch: Batch) -> int:
        """The most rows of a sequence of its schedules: of decodes, verifications or others. Another plan may give
        other bits, so there is one if they must not depend on the batch."""
        capacities = (self._most_rows,) if self._invariant else (1, self._drafts, self._most_rows)
        return next(rows for rows in capacities if batch.rows <= rows)

    def _attend(self, q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None, layer: Any,
                forward_batch: Any, save_kv_cache: bool, sinks: torch.Tensor | None = None) -> torch.Tensor:
        if layer.is_cross_attention:
            raise NotImplementedError("cross attention is not in this backend")
        pool = forward_batch.token_to_kv_pool
        caches = pool.get_kv_buffer(layer.layer_id)
        k_cache, v_cache = (cache.view(-1, self._page, *cache.shape[1:]) for cache in caches)
        if k is not None and save_kv_cache:
            new = (x.view(-1, *cache.shape[2:]) for x, cache in ((k, k_cache), (v, v_cache)))
            attn.torch.append(*new, k_cache, v_cache, forward_batch.out_cache_loc)
        q = q.view(-1, layer.tp_q_head_num, layer.head_dim)
        options = {**_options_of(layer), "s_aux": sinks}
        out = q.new_empty((len(q), layer.tp_q_head_num, layer.v_head_dim))
        attn.torch.varlen_attention(
            q, k_cache, v_cache, cu_seqlens_q=self._batch.starts, seqused_k=self._batch.lengths,
            block_table=self._batch.table, max_seqlen_q=self._capacity(self._batch), max_seqlen_k=self._most_keys,
            out=out, schedule=self._schedule(q, k_cache, v_cache, options), **options)
        return out.view(len(q), -1)

    def _schedule(self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor,
                  options: dict[str, Any]) -> attn.torch.Schedule:
        """That of layers with these options, for the batch under way: made first if there is none, which compiles
        kernels, in one of the runs before graphs are captured."""
        sinks = options["s_aux"]
        kind = (options["softmax_scale"], options["softcap"], options["window_size"], options["causal"],
                None if sinks is None else sinks.dtype, q.shape[1:], v_cache.shape[2:])
        rows = self._capacity(self._batch)
        schedule = self._schedules.get((rows, *kind))
        if schedule is None:
            table = self._batch.table.new_empty((self._sequences, self._columns))
            schedule = self._make(q, k_cache, v_cache, table, max_seqlen_q=rows, max_seqlen_k=self._most_keys,
                                  **options)
            schedule.build(self._batch.starts, self._batch.lengths)
            self._schedules[rows, *kind] = schedule
        return schedule

    def _make(self, *tensors: torch.Tensor, **options: Any) -> attn.torch.Schedule:
        """With parts of as many keys in every batch, if bits must not depend on it: twice as many, four times, .. where
        there are too many parts, which sequences that share pages have as others."""
        if not self._invariant:
            return attn.torch.Schedule(*tensors, **options)
        split = SPLIT_KEYS
        while split < self._most_keys:
            try:
                return attn.torch.Schedule(*tensors, split_keys=split, capacity_rows=options["max_seqlen_q"],
                                           capacity_keys=self._sequences * self._most_keys, **options)
            except attn.ArgumentError:
                split *= 2
        return attn.torch.Schedule(*tensors, max_parts=1, **options)


def _refuse(model_runner: Any) -> None:
    """Raises NotImplementedError for what the backend does not serve, with the reason."""
    arguments = model_runner.server_args
    if getattr(model_runner, "use_mla_backend", False):
        raise NotImplementedError("MLA's cache has one row of latent elements for all heads, which this backend does"
                                  " not append: use another one (attn.torch.varlen_attention can read it)")
    if model_runner.model_config.is_encoder_decoder:
        raise NotImplementedError("the keys of an encoder have slots of their own, which this backend does not have")
    branches = [getattr(arguments, "speculative_eagle_topk", None) or 1]
    if getattr(arguments, "speculative_algorithm", None) == "NGRAM":
        branches.append(getattr(arguments, "speculative_ngram_max_bfs_breadth", None) or 1)
    if max(branches) > 1:
        raise NotImplementedError("drafts in a tree need a mask, since a row does not see those of other branches: use"
                                  " speculative_eagle_topk=1, and speculative_ngram_max_bfs_breadth=1")
    if hasattr(getattr(model_runner, "token_to_kv_pool", None), "full_to_swa_index_mapping"):
        raise NotImplementedError("layers with windows have a cache with other slots: use --disable-hybrid-swa-memory")
    if getattr(model_runner, "attention_chunk_size", None):
        raise NotImplementedError("layers that see a chunk of positions are not in this backend")


def _options_of(layer: Any) -> dict[str, Any]:
    """What a layer computes, as arguments of varlen_attention."""
    kind = getattr(layer, "attn_type", "decoder")
    kind = getattr(kind, "value", kind)
    if kind not in ("decoder", "encoder_only"):
        raise NotImplementedError(f"attention of type {kind} is not in this backend: rows of an image, that see those"
                                  " after them, need a mask")
    window = layer.sliding_window_size  # does not count the row's own key
    left = -1 if window is None else window
    causal = kind == "decoder"
    return {"softmax_scale": float(layer.scaling), "softcap": float(layer.logit_cap or 0), "causal": causal,
            "window_size": (left, -1 if causal else left)}
