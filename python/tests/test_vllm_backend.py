"""The backend of examples/serving for vLLM, with stand-ins for the modules of vLLM."""

import enum
import types

import pytest

torch = pytest.importorskip("torch")

from serving_stand_ins import (  # noqa: E402, F401
    DEPTH, DEVICE, HEADS, HEADS_KV, ON_GPU, PLAIN, STEPS, DenseSchedule, close, dense, dense_without_a_gpu, requests_of,
    right_of, stub)

LAYERS = {
    "plain": dict(),
    "window, softcap": dict(sliding_window=16, logits_soft_cap=20.0),
    "sinks": dict(sinks=torch.linspace(-1, 2, HEADS, device=DEVICE).bfloat16()),
    "slopes": dict(alibi_slopes=[0.1 * head for head in range(HEADS)]),
}


class Group:
    """The ranks of a context, of which each has its turn: q of all, and o and lse of those that had theirs."""

    def __init__(self, world_size):
        self.world_size, self.rank_in_group, self.queries, self.parts = world_size, 0, None, {}

    def all_gather(self, q, dim):
        assert dim == 1 and q.is_contiguous() and q.equal(self.queries[self.rank_in_group])
        return torch.cat(self.queries, 1)


def merge_of_group(o, lse, group, return_lse=False):
    """What vLLM does by communication: the merged result of this rank's heads, once all had their turn."""
    assert lse.shape == o.shape[:2] and lse.dtype == torch.float32
    group.parts[group.rank_in_group] = o.double(), lse.double()
    heads = slice(group.rank_in_group * o.shape[1] // group.world_size,
                  (group.rank_in_group + 1) * o.shape[1] // group.world_size)
    all_o, all_lse = (torch.stack(parts)[:, :, heads] for parts in zip(*group.parts.values()))
    merged = torch.logsumexp(all_lse, 0)
    weights = torch.exp(all_lse - merged).nan_to_num(0.0)
    made = (weights[..., None] * all_o).sum(0).to(o.dtype)
    return (made, merged.float()) if return_lse else made


def lengths_of_rank(lengths, ranks, rank, interleave):
    whole = ranks * interleave
    return lengths // whole * interleave + (lengths % whole - rank * interleave).clamp(0, interleave)


def vllm(monkeypatch, layout="NHD", group=None, invariant=False):
    base = types.SimpleNamespace

    class Impl:
        dcp_world_size = 1 if group is None else group.world_size

    class Builder:
        def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
            self.device = device

        def build_for_cudagraph_capture(self, common_attn_metadata):
            return self.build(0, common_attn_metadata)

    class MultipleOf:
        def __init__(self, of):
            self.base = of

    support = enum.Enum("AttentionCGSupport", ["NEVER", "ALWAYS"])
    registered = {}
    module = stub(monkeypatch, {
        "vllm": {"envs": base(VLLM_BATCH_INVARIANT=invariant)},
        "vllm.config": {"get_current_vllm_config_or_none": lambda: None},
        "vllm.distributed.parallel_state": {"get_dcp_group": lambda: group},
        "vllm.v1.attention.ops.common": {"cp_lse_ag_out_rs": merge_of_group},
        "vllm.v1.attention.backend": {
            "AttentionBackend": type("AttentionBackend", (), {}), "AttentionImpl": Impl,
            "AttentionMetadataBuilder": Builder, "AttentionCGSupport": support, "MultipleOf": MultipleOf,
            "AttentionType": base(DECODER="decoder", ENCODER="encoder", ENCODER_ONLY="encoder_only",
                                  ENCODER_DECODER="encoder_decoder")},
        "vllm.v1.attention.backends.registry": {
            "AttentionBackendEnum": base(CUSTOM="custom"), "register_backend": registered.__setitem__},
        "vllm.v1.attention.backends.utils": {"get_kv_cache_layout": lambda: layout,
                                             "get_dcp_local_seq_lens": lengths_of_rank},
    }, "vllm_backend")
    module.register()
    assert registered == {"custom": "vllm_backend.AttncBackend"}
    assert module.AttncMetadataBuilder._cudagraph_support is support.ALWAYS
    return module


def vllm_builder(module, drafts=None, ranks=1, interleave=1):
    config = types.SimpleNamespace(
        scheduler_config=types.SimpleNamespace(max_num_seqs=4, max_num_batched_tokens=96),
        speculative_config=None if drafts is None else types.SimpleNamespace(num_speculative_tokens=drafts),
        model_config=types.SimpleNamespace(max_model_len=128),
        parallel_config=types.SimpleNamespace(decode_context_parallel_size=ranks,
                                              cp_kv_cache_interleave_size=interleave))
    return module.AttncMetadataBuilder(None, ["layer"], config, torch.device(DEVICE))


def vllm_cache(module, pages, page):
    shape, order = module.AttncBackend.get_kv_cache_shape(pages, page, HEADS_KV, DEPTH), None
    order = module.AttncBackend.get_kv_cache_stride_order()
    memory = torch.zeros([shape[dim] for dim in order], device=DEVICE).bfloat16()
    return memory.permute([order.index(dim) for dim in range(5)])


def vllm_batch(step, requests, columns, page):
    """CommonAttentionMetadata of a step, q, k and v with rows of padding, and the requests."""
    served = [requests[number] for number in step]
    rows = list(step.values())
    new = [request.extend(count) for request, count in zip(served, rows)]
    padding = [torch.full((3, heads, DEPTH), torch.nan, device=DEVICE).bfloat16()
               for heads in (HEADS, HEADS_KV, HEADS_KV)]
    q, k, v = (torch.cat([*parts, extra]) for parts, extra in zip(zip(*new), padding))
    common = types.SimpleNamespace(
        num_actual_tokens=sum(rows), num_reqs=len(rows), max_query_len=max(rows),
        max_seq_len=max(len(request.k) for request in served),
        query_start_loc=torch.tensor([0, *rows], device=DEVICE).cumsum(0).int(),
        seq_lens=torch.tensor([len(request.k) for request in served], dtype=torch.int32, device=DEVICE),
        block_table_tensor=torch.tensor([request.pages for request in served], dtype=torch.int32, device=DEVICE),
        slot_mapping=torch.cat([request.slots(count, page) for request, count in zip(served, rows)]).to(DEVICE),
        causal=True)
    return common, (q, k, v), served, rows


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_vllm(monkeypatch, layout, layer):
    module, page, columns = vllm(monkeypatch, layout), 16, 9
    impl = module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV, **LAYERS[layer])
    builder, cache = vllm_builder(module), vllm_cache(module, 40, page)
    assert cache.shape == (2, 40, page, HEADS_KV, DEPTH)
    requests, kwargs = requests_of(3, 40, columns), LAYERS[layer]
    slopes = kwargs.get("alibi_slopes")
    options = dict(softmax_scale=0.1, window_size=(kwargs.get("sliding_window", 0) - 1, -1),
                   softcap=kwargs.get("logits_soft_cap", 0.0), s_aux=kwargs.get("sinks"),
                   alibi_slopes=None if slopes is None else torch.tensor(slopes, device=DEVICE))
    with torch.no_grad():
        for step in STEPS:
            common, (q, k, v), served, rows = vllm_batch(step, requests, columns, page)
            metadata = builder.build(0, common)
            impl.do_kv_cache_update(None, k, v, cache, metadata.slot_mapping)
            output = torch.full_like(q, torch.nan)
            assert impl.forward(None, q, k, v, cache, metadata, output) is output
            close(output[:sum(rows)], right_of(served, rows, q, options))
            assert output[sum(rows):].isnan().all()
    if not ON_GPU:  # one of decodes, one of others
        assert [schedule.most for schedule in DenseSchedule.made] == [(4, 96, 128), (4, 1, 128)]
        assert [schedule.columns for schedule in DenseSchedule.made] == [columns, columns]


def test_vllm_metadata_that_is_not_the_last(monkeypatch):
    """Drafting builds others between."""
    module = vllm(monkeypatch)
    impl, builder, cache = module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV), vllm_builder(module, 2), None
    cache, requests = vllm_cache(module, 40, 16), requests_of(3, 40, 9)
    with torch.no_grad():
        made = []
        for step in STEPS[:2]:
            common, new, served, rows = vllm_batch(step, requests, 9, 16)
            impl.do_kv_cache_update(None, *new[1:], cache, common.slot_mapping)
            made.append((builder.build(0, common), new, len(common.seq_lens)))
        for metadata, (q, k, v), _ in (made[1], made[0], made[1]):
            impl.forward(None, q, k, v, cache, metadata, torch.empty_like(q))
    if not ON_GPU:
        assert [schedule.most for schedule in DenseSchedule.made] == [(4, 96, 130)]


def test_vllm_reads_a_long_common_prefix_once(monkeypatch):
    module, requests = vllm(monkeypatch), requests_of(3, 40, 9)
    builder = vllm_builder(module)
    asked = dict(common_prefix_len=512, query_lens=[1] * 8, num_query_heads=HEADS, num_kv_heads=HEADS_KV,
                 use_alibi=False, use_sliding_window=False, use_local_attention=False, num_sms=132, dcp_world_size=1)
    assert builder.use_cascade_attention(**asked)
    for other in ({"common_prefix_len": 128}, {"query_lens": [1] * 7}, {"use_alibi": True},
                  {"use_sliding_window": True}, {"use_local_attention": True}):
        assert not builder.use_cascade_attention(**{**asked, **other})
    with monkeypatch.context() as patch:
        patch.setattr(module.envs, "VLLM_BATCH_INVARIANT", True)
        assert not vllm_builder(module).use_cascade_attention(**asked)
    if ON_GPU:
        return  # test_torch_varlen_shared_gpu.py
    impl, cache = module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV), vllm_cache(module, 40, 16)
    with torch.no_grad():
        for step, shared in zip(STEPS[:2], (16, 0)):
            common, (q, k, v), served, rows = vllm_batch(step, requests, 9, 16)
            impl.do_kv_cache_update(None, k, v, cache, common.slot_mapping)
            output = torch.empty_like(q)
            impl.forward(None, q, k, v, cache, builder.build(shared, common), output)
            close(output[:sum(rows)], right_of(served, rows, q, PLAIN))
            assert {schedule.shared_keys for schedule in DenseSchedule.made} == {shared}


def test_vllm_drafts_are_rows_of_decodes(monkeypatch):
    module, requests = vllm(monkeypatch), requests_of(3, 40, 9)
    impl, builder = module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV), vllm_builder(module, drafts=2)
    cache = vllm_cache(module, 40, 16)
    with torch.no_grad():
        for step in ({0: 20, 1: 9, 2: 40}, {0: 3, 1: 3, 2: 3}, {0: 2, 1: 3, 2: 1}):
            common, (q, k, v), served, rows = vllm_batch(step, requests, 9, 16)
            impl.do_kv_cache_update(None, k, v, cache, common.slot_mapping)
            output = torch.empty_like(q)
            impl.forward(None, q, k, v, cache, builder.build(0, common), output)
            close(output[:sum(rows)], right_of(served, rows, q, PLAIN))
    if not ON_GPU:
        assert [schedule.most[1] for schedule in DenseSchedule.made] == [96, 3]


def test_vllm_block_tables_of_another_group(monkeypatch):
    """A batch of the same schedules with other pages; layers of the groups take turns."""
    module, requests = vllm(monkeypatch), requests_of(3, 40, 9)
    impl, builder = module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV), vllm_builder(module)
    caches = [vllm_cache(module, 40, 16) for _ in range(2)]
    assert builder.supports_update_block_table
    with torch.no_grad():
        for step in STEPS[:3]:
            common, (q, k, v), served, rows = vllm_batch(step, requests, 9, 16)
            first = builder.build(0, common)
            second = builder.update_block_table(first, 39 - first.block_table, (39 - first.slot_mapping // 16) * 16
                                                + first.slot_mapping % 16)
            builds = DenseSchedule.builds
            for metadata, cache in 2 * list(zip((first, second), caches)):
                impl.do_kv_cache_update(None, k, v, cache, metadata.slot_mapping)
                output = torch.full_like(q, torch.nan)
                impl.forward(None, q, k, v, cache, metadata, output)
                close(output[:sum(rows)], right_of(served, rows, q, PLAIN))
            made = {0: 1, 1: 0, 2: 1}[STEPS.index(step)]  # the schedule of prefills, then that of decodes
            assert ON_GPU or DenseSchedule.builds == builds + made
    assert not caches[0].equal(caches[1])


@pytest.mark.parametrize("kind", ["encoder", "encoder_only"])
def test_vllm_encoders(monkeypatch, kind):
    """Keys are those of the batch's tokens, and in no cache."""
    module, options = vllm(monkeypatch), dict(softmax_scale=0.1, window_size=(4, 4), causal=False)
    assert module.AttncBackend.supports_attn_type(kind)
    impl = module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV, attn_type=kind, sliding_window=5)
    builder, cache = vllm_builder(module), torch.empty(0, device=DEVICE)
    with torch.no_grad():
        for step in ({0: 37, 1: 5}, {0: 1, 1: 60, 2: 3}):
            requests = requests_of(3, 40, 9)
            common, (q, k, v), served, rows = vllm_batch(step, requests, 9, 16)
            common.causal, common.block_table_tensor = False, common.block_table_tensor[:, :1] * 0
            metadata = builder.build(0, common)
            for _ in range(2):  # layers
                impl.do_kv_cache_update(None, k, v, cache, metadata.slot_mapping)
                output = torch.full_like(q, torch.nan)
                impl.forward(None, q, k, v, cache, metadata, output)
                close(output[:sum(rows)], right_of(served, rows, q, options))
    if not ON_GPU:
        assert [schedule.most for schedule in DenseSchedule.made] == [(4, 96, 96)]


def test_vllm_cross_attention(monkeypatch):
    """All rows of a decoder see all keys of its encoder, of which there may be more than the decoder has positions."""
    module, options = vllm(monkeypatch), dict(softmax_scale=0.1, window_size=(-1, -1), causal=False)
    impl = module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV, attn_type="encoder_decoder")
    builder, cache, requests = vllm_builder(module), vllm_cache(module, 40, 16), requests_of(3, 40, 12)
    with torch.no_grad():
        encoded, (_, k, v), _, _ = vllm_batch({0: 150, 1: 9, 2: 64}, requests, 12, 16)
        impl.do_kv_cache_update(None, k, v, cache, encoded.slot_mapping)
        for rows in ([4, 7, 1], [1, 1, 1]):
            common, (q, *_), *_ = vllm_batch(dict(enumerate(rows)), requests_of(3, 40, 12), 12, 16)
            common.causal, common.seq_lens = False, encoded.seq_lens
            output = torch.empty_like(q)
            impl.forward(None, q, None, None, cache, builder.build(0, common), output)
            close(output[:sum(rows)], right_of(requests, rows, q, options))
    if not ON_GPU:
        assert [schedule.most for schedule in DenseSchedule.made] == [(4, 96, 192), (4, 1, 192)]


def slots_of_rank(request, rows, page, ranks, rank, interleave):
    """Slots of a request's last rows in the cache of a rank, -1: another one has it."""
    at = torch.arange(len(request.k) - rows, len(request.k))
    local = at // (ranks * interleave) * interleave + at % interleave
    slots = torch.tensor(request.pages)[local // page] * page + local % page
    return torch.where(at // interleave % ranks == rank, slots, -1)


@pytest.mark.parametrize("interleave", [1, 16])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("invariant", [False, True])
def test_vllm_ranks_of_a_context(monkeypatch, interleave, sinks, invariant):
    """Each rank has its heads of q, and a part of the keys in its cache; results are merged by lse."""
    ranks, page, group = 2, 16, Group(2)
    module, heads = vllm(monkeypatch, group=group, invariant=invariant), HEADS // 2
    sinks = torch.linspace(-1, 2, HEADS, device=DEVICE) if sinks else None
    impls, builders, caches = [], [], []
    for rank in range(ranks):
        group.rank_in_group = rank
        own = None if sinks is None else sinks[rank * heads:][:heads].clone()
        impls.append(module.AttncImpl(heads, DEPTH, 0.1, 1, sinks=own))
        builders.append(vllm_builder(module, ranks=ranks, interleave=interleave))
        caches.append(vllm_cache(module, 40, page)[:, :, :, :1])
    assert impls[0].can_return_lse_for_decode
    requests, right = requests_of(3, 40, 9), dict(softmax_scale=0.1, window_size=(-1, -1), s_aux=sinks)
    with torch.no_grad():
        for step in STEPS:
            common, (q, k, v), served, rows = vllm_batch(step, requests, 9, page)
            total = sum(rows)
            group.queries = [part.contiguous() for part in q[:total].split(heads, 1)]
            group.parts, outputs = {}, [None, None]
            for rank in (0, 1, 0):  # the first one knows what the second one has at its second turn
                group.rank_in_group = rank
                slots = torch.cat([slots_of_rank(request, count, page, ranks, rank, interleave)
                                   for request, count in zip(served, rows)]).to(DEVICE)
                metadata = builders[rank].build(0, common)
                own_q, own_k, own_v = q[:, rank * heads:][:, :heads], k[:, :1], v[:, :1]
                impls[rank].do_kv_cache_update(None, own_k, own_v, caches[rank], slots)
                outputs[rank] = torch.full_like(own_q, torch.nan)
                impls[rank].forward(None, own_q, own_k, own_v, caches[rank], metadata, outputs[rank])
            wanted = [dense(part, request.k[:, :1], request.v[:, :1], **right)
                      for part, request in zip(q[:total].split(rows), served)]
            close(torch.cat(outputs, 1)[:total], torch.cat(wanted))
    if not ON_GPU:
        with_lse = {schedule.options.get("return_lse") for schedule in DenseSchedule.made}
        assert with_lse == {True}


def test_vllm_bits_do_not_depend_on_the_batch(monkeypatch):
    """With VLLM_BATCH_INVARIANT decodes and prefills have one plan, and parts of as many keys."""
    module = vllm(monkeypatch, invariant=True)
    module.register(split_keys=16)
    assert module.AttncBackend.supports_batch_invariance()
    DenseSchedule.least_split = 64
    impl, page, results = module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV), 16, []
    with torch.no_grad():
        for alone in (False, True):
            torch.manual_seed(1)
            builder, cache, requests = vllm_builder(module), vllm_cache(module, 40, page), requests_of(3, 40, 9)
            for step in STEPS:
                common, new, served, rows = vllm_batch(step, requests, 9, page)
                impl.do_kv_cache_update(None, *new[1:], cache, common.slot_mapping)
                at = [0, *torch.tensor(rows).cumsum(0).tolist()]
                for i in range(len(rows)) if alone else [None]:
                    part = slice(None) if i is None else slice(i, i + 1)
                    q = new[0] if i is None else new[0][at[i]:at[i + 1]].contiguous()
                    mine = types.SimpleNamespace(**vars(common))
                    mine.seq_lens, mine.block_table_tensor = common.seq_lens[part], common.block_table_tensor[part]
                    if i is not None:
                        mine.query_start_loc = torch.tensor([0, rows[i]], dtype=torch.int32, device=DEVICE)
                        mine.num_actual_tokens, mine.max_query_len = rows[i], rows[i]
                    output = torch.zeros_like(q)
                    impl.forward(None, q, None, None, cache, builder.build(0, mine), output)
                    results.append(output[:mine.num_actual_tokens])
    half = torch.cat(results).chunk(2)
    assert half[0].equal(half[1])
    if not ON_GPU:
        made = [(schedule.most, schedule.options["split_keys"], schedule.options["capacity_keys"])
                for schedule in DenseSchedule.made]
        assert made == 2 * [((4, 96, 128), 64, 4 * 128)]
        module.register(split_keys=0)
        impl.forward(None, q, None, None, cache, vllm_builder(module).build(0, mine), output)
        assert DenseSchedule.made[-1].options["max_parts"] == 1


def test_what_vllm_is_refused(monkeypatch):
    module = vllm(monkeypatch)
    with pytest.raises(NotImplementedError, match="a cache of fp8"):
        module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV, kv_cache_dtype="fp8")
    common, *_ = vllm_batch({0: 3}, requests_of(1, 40, 9), 9, 16)
    common.causal = torch.ones(1, dtype=torch.bool)
    with pytest.raises(NotImplementedError, match="some are causal"):
        vllm_builder(module).build(0, common)
    assert module.AttncBackend.supports_head_size(80) and not module.AttncBackend.supports_head_size(84)
    output = torch.ones(3, 4)
    impl = module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV)
    assert impl.forward(None, None, None, None, None, None, output) is output and not output.any()
    monkeypatch.setattr(module.AttncImpl, "dcp_world_size", 2)
    for match, wrong in (("slopes and windows", {"sliding_window": 16}),
                         ("slopes and windows", {"alibi_slopes": [0.1] * HEADS}),
                         ("one head of keys, not 2", {}), ("keys of an encoder", {"attn_type": "encoder_decoder"})):
        with pytest.raises(NotImplementedError, match=match):
            module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV, **wrong)


@pytest.mark.skipif(not ON_GPU, reason="no GPU of compute capability 9.0")
def test_vllm_in_a_graph(monkeypatch):
    """A graph of mixed batches, captured once: metadata of each batch is built outside of it, in the same memory."""
    module, page, columns = vllm(monkeypatch), 16, 9
    impl, builder = module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV), vllm_builder(module)
    cache, requests = vllm_cache(module, 40, page), requests_of(3, 40, columns)

    def numbers(*shape):
        return torch.zeros(shape, dtype=torch.int32, device=DEVICE)

    starts, lengths, table = numbers(4), numbers(3), numbers(3, columns)
    slots = torch.full((96,), -1, dtype=torch.int64, device=DEVICE)
    q, k, v = (torch.zeros(96, heads, DEPTH, device=DEVICE).bfloat16() for heads in (HEADS, HEADS_KV, HEADS_KV))
    output, graph = torch.zeros_like(q), None

    def run(metadata):
        impl.do_kv_cache_update(None, k, v, cache, slots)
        impl.forward(None, q, k, v, cache, metadata, output)

    with torch.no_grad():
        for step in STEPS:
            common, new, served, rows = vllm_batch(step, requests, columns, page)
            total, count = sum(rows), len(rows)
            for memory, x in zip((q, k, v), new):
                memory[:total] = x[:total]
            slots.fill_(-1)[:total] = common.slot_mapping
            starts.fill_(total)[:count + 1] = common.query_start_loc
            lengths.zero_()[:count] = common.seq_lens
            table.zero_()[:count] = common.block_table_tensor
            common.num_actual_tokens, common.query_start_loc, common.seq_lens = 96, starts, lengths
            common.block_table_tensor, common.slot_mapping = table, slots
            metadata = builder.build(0, common)
            if graph is None:
                run(metadata)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    run(metadata)
            graph.replay()
            torch.cuda.synchronize()
            close(output[:total], right_of(served, rows, q, dict(softmax_scale=0.1, window_size=(-1, -1))))
