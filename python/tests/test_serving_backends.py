"""The backends of examples/serving, with stand-ins for the modules of vLLM and SGLang: requests are served step by
step, and each row compared with dense attention over what its request has. On a GPU by attnc's kernels; without one, dense
attention takes their place, which looks at what the backends give to it."""

import enum
import importlib
import pathlib
import random
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import attn.torch  # noqa: E402

ON_GPU = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
DEVICE = "cuda" if ON_GPU else "cpu"
FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "serving"
HEADS, HEADS_KV, DEPTH = 10, 2, 64


class DenseSchedule:
    """What attn.torch.Schedule is made with, and the lengths of its last build."""

    made = []

    def __init__(self, q, k_cache, v_cache, block_table, *, max_seqlen_q, max_seqlen_k, **options):
        self.most = len(block_table), max_seqlen_q, max_seqlen_k
        self.options, self.columns = options, block_table.shape[1]
        DenseSchedule.made.append(self)

    def build(self, cu_seqlens_q, seqused_k, num_sequences=None):
        assert len(seqused_k) <= self.most[0] and len(cu_seqlens_q) == len(seqused_k) + 1
        assert cu_seqlens_q.diff().max() <= self.most[1] and seqused_k.max() <= self.most[2]
        self.lengths = cu_seqlens_q.clone(), seqused_k.clone()


def dense_varlen(q, k_cache, v_cache, *, cu_seqlens_q, seqused_k, block_table, max_seqlen_q, max_seqlen_k, out,
                 schedule, **options):
    assert schedule.lengths[0].equal(cu_seqlens_q) and schedule.lengths[1].equal(seqused_k)
    assert schedule.most[1:] == (max_seqlen_q, max_seqlen_k)
    for name, value in options.items():
        assert value is schedule.options.get(name) or value == schedule.options[name]
    assert all(x.dtype == torch.int32 for x in (cu_seqlens_q, seqused_k, block_table))
    assert block_table.shape[1] >= schedule.columns
    for sequence, (first, end) in enumerate(zip(cu_seqlens_q.tolist(), cu_seqlens_q[1:].tolist())):
        keys, page = int(seqused_k[sequence]), k_cache.shape[1]
        pages = block_table[sequence, :-(-keys // page)].long()
        k, v = (cache[pages].flatten(0, 1)[:keys] for cache in (k_cache, v_cache))
        out[first:end] = dense(q[first:end], k, v, **options)
    return out


def dense_append(k, v, k_cache, v_cache, slots):
    page = k_cache.shape[1]
    assert slots.dtype == torch.int64
    for new, cache in ((k, k_cache), (v, v_cache)):
        cache[slots // page, slots % page] = new
    return None


def dense(q, k, v, softmax_scale, window_size, causal=True, softcap=0.0, s_aux=None, alibi_slopes=None):
    """Attention of one sequence, q [rows, Hq, D], k and v [keys, Hkv, D]; in q's type."""
    rows, keys, group = len(q), len(k), q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    s = torch.einsum("qhd,khd->hqk", q.double(), k) * softmax_scale
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    past = torch.arange(keys - rows, keys, device=q.device)[:, None] - torch.arange(keys, device=q.device)
    if alibi_slopes is not None:
        s = s - alibi_slopes.double()[:, None, None] * past.abs()
    left, _ = window_size
    s = s.masked_fill((past < 0) | ((past > left) & (left >= 0)), -torch.inf)
    if s_aux is not None:
        s = torch.cat([s, s_aux.double()[:, None, None].expand(-1, rows, 1)], -1)
    return torch.einsum("hqk,khd->qhd", s.softmax(-1)[..., :keys], v).to(q.dtype)


@pytest.fixture(autouse=True)
def dense_without_a_gpu(monkeypatch):
    DenseSchedule.made = []
    monkeypatch.syspath_prepend(str(FOLDER))
    if not ON_GPU:
        monkeypatch.setattr(attn.torch, "Schedule", DenseSchedule)
        monkeypatch.setattr(attn.torch, "varlen_attention", dense_varlen)
        monkeypatch.setattr(attn.torch, "append", dense_append)


def stub(monkeypatch, modules, name):
    """Puts modules in place and imports a backend, which is forgotten after the test."""
    for path, content in modules.items():
        parts = path.split(".")
        for count in range(1, len(parts)):
            parent = ".".join(parts[:count])
            if parent not in sys.modules:
                monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
        module = types.ModuleType(path)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, path, module)
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, name, module)
    return module


class Request:
    """One sequence: its pages, and all of its keys and values."""

    def __init__(self, number, pages):
        self.number, self.pages = number, pages
        self.k, self.v = (torch.zeros(0, HEADS_KV, DEPTH, device=DEVICE).bfloat16() for _ in range(2))

    def extend(self, rows):
        """New rows of q, k and v."""
        q, *new = (torch.randn(rows, heads, DEPTH, device=DEVICE).bfloat16() for heads in (HEADS, HEADS_KV, HEADS_KV))
        self.k, self.v = (torch.cat(pair) for pair in zip((self.k, self.v), new))
        return q, *new

    def slots(self, rows, page):
        at = torch.arange(len(self.k) - rows, len(self.k))
        return torch.tensor(self.pages)[at // page] * page + at % page


def requests_of(count, pages, columns):
    """With pages in random order, of which page 0 is none's."""
    numbers = random.Random(1).sample(range(1, pages), count * columns)
    return [Request(number, numbers[number * columns:][:columns]) for number in range(count)]


# Rows of requests by number, step by step: prefills in chunks, mixed batches, decodes, fewer requests.
STEPS = [{0: 37, 1: 5}, {0: 20, 1: 1, 2: 64}, {0: 1, 1: 1, 2: 1}, {1: 1, 2: 1}, {1: 1, 2: 3}, {2: 1}]


def close(x, right):
    torch.testing.assert_close(x.float(), right.float(), rtol=0.02, atol=0.02)


LAYERS = {
    "plain": dict(),
    "window, softcap": dict(sliding_window=16, logits_soft_cap=20.0),
    "sinks": dict(sinks=torch.linspace(-1, 2, HEADS, device=DEVICE).bfloat16()),
    "slopes": dict(alibi_slopes=[0.1 * head for head in range(HEADS)]),
}


def vllm(monkeypatch, layout="NHD"):
    base = types.SimpleNamespace

    class Impl:
        dcp_world_size = 1

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
        "vllm.v1.attention.backend": {
            "AttentionBackend": type("AttentionBackend", (), {}), "AttentionImpl": Impl,
            "AttentionMetadataBuilder": Builder, "AttentionCGSupport": support, "MultipleOf": MultipleOf,
            "AttentionType": base(DECODER="decoder", ENCODER="encoder")},
        "vllm.v1.attention.backends.registry": {
            "AttentionBackendEnum": base(CUSTOM="custom"), "register_backend": registered.__setitem__},
        "vllm.v1.attention.backends.utils": {"get_kv_cache_layout": lambda: layout},
    }, "vllm_backend")
    module.register()
    assert registered == {"custom": "vllm_backend.AttncBackend"}
    assert module.AttncMetadataBuilder._cudagraph_support is support.ALWAYS
    return module


def vllm_builder(module, drafts=None):
    config = types.SimpleNamespace(
        scheduler_config=types.SimpleNamespace(max_num_seqs=4, max_num_batched_tokens=96),
        speculative_config=None if drafts is None else types.SimpleNamespace(num_speculative_tokens=drafts),
        model_config=types.SimpleNamespace(max_model_len=128))
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


def right_of(served, rows, q, options):
    parts = q[:sum(rows)].split(rows)
    return torch.cat([dense(part, request.k, request.v, **options) for part, request in zip(parts, served)])


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


def test_what_vllm_is_refused(monkeypatch):
    module = vllm(monkeypatch)
    for match, wrong in (("the attention of type encoder", {"attn_type": "encoder"}),
                         ("a cache of fp8", {"kv_cache_dtype": "fp8"})):
        with pytest.raises(NotImplementedError, match=match):
            module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV, **wrong)
    monkeypatch.setattr(module.AttncImpl, "dcp_world_size", 2)
    with pytest.raises(NotImplementedError, match="context parallelism"):
        module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV)
    assert module.AttncBackend.supports_head_size(80) and not module.AttncBackend.supports_head_size(84)
    output = torch.ones(3, 4)
    monkeypatch.setattr(module.AttncImpl, "dcp_world_size", 1)
    impl = module.AttncImpl(HEADS, DEPTH, 0.1, HEADS_KV)
    assert impl.forward(None, None, None, None, None, None, output) is output and not output.any()


def sglang(monkeypatch):
    backends = {}

    def register(name):
        return lambda made: backends.setdefault(name, made)

    module = stub(monkeypatch, {
        "sglang.srt.layers.attention.attention_registry": {"register_attention_backend": register},
        "sglang.srt.layers.attention.base_attn_backend": {"AttentionBackend": type("AttentionBackend", (), {})},
    }, "sglang_backend")
    module.register()
    return backends["attnc"]


class Mode(enum.Enum):
    """ForwardMode."""

    DECODE, EXTEND, VERIFY = range(3)

    def is_decode_or_idle(self):
        return self is Mode.DECODE

    def is_target_verify(self):
        return self is Mode.VERIFY


class Runner:
    """A model runner with requests of at most 144 tokens."""

    use_mla_backend = False
    model_config = types.SimpleNamespace(is_encoder_decoder=False)

    def __init__(self, page, drafts=None, topk=None):
        self.page_size = page
        self.server_args = types.SimpleNamespace(chunked_prefill_size=96, speculative_eagle_topk=topk,
                                                 speculative_num_draft_tokens=drafts)
        columns = 144 // page
        self.requests = requests_of(3, 3 * columns + 5, columns)
        slots = torch.zeros(5, 144, dtype=torch.int32, device=DEVICE)
        for request in self.requests:
            first = torch.tensor(request.pages)[:, None] * page
            slots[request.number + 1] = (first + torch.arange(page)).flatten().int()
        self.req_to_token_pool = types.SimpleNamespace(req_to_token=slots)
        caches = [torch.zeros((3 * columns + 5) * page, HEADS_KV, DEPTH, device=DEVICE).bfloat16() for _ in range(2)]
        self.token_to_kv_pool = types.SimpleNamespace(get_kv_buffer=lambda layer: caches)

    def batch(self, step, mode, before=0):
        """ForwardBatch, q, k and v of a step; lengths leave out the last `before` rows of each request."""
        served, rows = [self.requests[number] for number in step], list(step.values())
        new = [request.extend(count) for request, count in zip(served, rows)]
        q, k, v = (torch.cat(parts).flatten(1) for parts in zip(*new))
        batch = types.SimpleNamespace(
            forward_mode=mode, token_to_kv_pool=self.token_to_kv_pool,
            req_pool_indices=torch.tensor([request.number + 1 for request in served], device=DEVICE),
            seq_lens=torch.tensor([len(request.k) - before for request in served], device=DEVICE),
            extend_seq_lens=torch.tensor(rows, device=DEVICE), extend_seq_lens_cpu=rows,
            out_cache_loc=torch.cat([request.slots(count, self.page_size)
                                     for request, count in zip(served, rows)]).to(DEVICE))
        return batch, (q, k, v), served, rows


def sglang_layer(**others):
    return types.SimpleNamespace(**{
        "layer_id": 0, "tp_q_head_num": HEADS, "head_dim": DEPTH, "v_head_dim": DEPTH, "scaling": 0.1,
        "logit_cap": 0.0, "sliding_window_size": -1, "is_cross_attention": False, **others})


@pytest.mark.parametrize("page", [1, 16, 48])
@pytest.mark.parametrize("options", [{}, {"sliding_window_size": 15, "logit_cap": 20.0}, {"sinks": True}])
def test_sglang(monkeypatch, page, options):
    runner = Runner(page)
    backend = sglang(monkeypatch)(runner)
    sinks = torch.linspace(-1, 2, HEADS, device=DEVICE) if options.get("sinks") else None
    layer = sglang_layer(**{name: value for name, value in options.items() if name != "sinks"})
    right = dict(softmax_scale=0.1, window_size=(layer.sliding_window_size, -1), softcap=layer.logit_cap, s_aux=sinks)
    kwargs = {} if sinks is None else {"sinks": sinks}
    with torch.no_grad():
        for step in STEPS:
            decodes = set(step.values()) == {1}
            batch, (q, k, v), served, rows = runner.batch(step, Mode.DECODE if decodes else Mode.EXTEND)
            backend.init_forward_metadata(batch)
            forward = backend.forward_decode if decodes else backend.forward_extend
            o = forward(q, k, v, layer, batch, **kwargs)
            close(o.view(-1, HEADS, DEPTH), right_of(served, rows, q.view(-1, HEADS, DEPTH), right))


@pytest.mark.parametrize("page", [1, 64])
@pytest.mark.parametrize("mode", [Mode.DECODE, Mode.VERIFY])
def test_sglang_graphs(monkeypatch, page, mode):
    """What graphs read has one address, and is filled before each replay."""
    runner = Runner(page if page == 1 else 48, drafts=4)
    backend = sglang(monkeypatch)(runner)
    layer, rows = sglang_layer(), 4 if mode is Mode.VERIFY else 1
    before = rows if mode is Mode.VERIFY else 0
    right = dict(softmax_scale=0.1, window_size=(-1, -1))
    backend.init_cuda_graph_state(3, 12)
    with torch.no_grad():
        batch, new, *_ = runner.batch({0: 30, 1: 8, 2: 70}, Mode.EXTEND)
        backend.init_forward_metadata(batch)
        backend.forward_extend(*new, layer, batch)
        seen = set()
        for turn in range(3):
            batch, (q, k, v), served, counts = runner.batch(dict.fromkeys((0, 1, 2), rows), mode, before)
            if turn == 0:
                backend.init_forward_metadata_capture_cuda_graph(
                    3, len(q), batch.req_pool_indices, batch.seq_lens, None, mode, None)
            else:
                backend.init_forward_metadata_replay_cuda_graph(
                    3, batch.req_pool_indices, batch.seq_lens, 0, None, mode, None, None)
            seen.add(tuple(x.data_ptr() for x in (backend._batch.starts, backend._batch.lengths, backend._batch.table)))
            o = backend.forward_decode(q, k, v, layer, batch)
            close(o.view(-1, HEADS, DEPTH), right_of(served, counts, q.view(-1, HEADS, DEPTH), right))
        assert len(seen) == 1
    with pytest.raises(NotImplementedError, match="graphs of"):
        backend.init_forward_metadata_capture_cuda_graph(3, 3, batch.req_pool_indices, batch.seq_lens, None,
                                                         Mode.EXTEND, None)
    if not ON_GPU:
        assert [schedule.most[1] for schedule in DenseSchedule.made] == [96, rows]


def test_what_sglang_is_refused(monkeypatch):
    backend = sglang(monkeypatch)
    with pytest.raises(NotImplementedError, match="drafts in a tree"):
        backend(Runner(16, drafts=4, topk=2))
    runner = Runner(16)
    runner.use_mla_backend = True
    with pytest.raises(NotImplementedError, match="MLA"):
        backend(runner)


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
