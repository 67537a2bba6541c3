"""The backend of examples/serving for SGLang, with stand-ins for the modules of SGLang."""

import enum
import sys
import types

import pytest

torch = pytest.importorskip("torch")

from serving_stand_ins import (  # noqa: E402, F401
    DEPTH, DEVICE, HEADS, HEADS_KV, ON_GPU, PLAIN, STEPS, DenseSchedule, close, dense_without_a_gpu, requests_of,
    right_of, stub)


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
    """A model runner with requests of at most 192 tokens."""

    use_mla_backend = False
    model_config = types.SimpleNamespace(is_encoder_decoder=False)

    def __init__(self, page, drafts=None, topk=None, **arguments):
        self.page_size = page
        self.server_args = types.SimpleNamespace(chunked_prefill_size=96, speculative_eagle_topk=topk,
                                                 speculative_num_draft_tokens=drafts, **arguments)
        columns = 192 // page
        self.requests = requests_of(3, 3 * columns + 5, columns)
        slots = torch.zeros(5, 192, dtype=torch.int32, device=DEVICE)
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


@pytest.mark.parametrize("page", [1, 16, 48, 64])
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
    runner = Runner(page, drafts=4)
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


def test_sglang_encoders(monkeypatch):
    runner = Runner(16)
    backend = sglang(monkeypatch)(runner)
    kind = enum.Enum("AttentionType", {"ENCODER_ONLY": "encoder_only"}).ENCODER_ONLY
    layer = sglang_layer(attn_type=kind, sliding_window_size=5)
    with torch.no_grad():
        batch, (q, k, v), served, rows = runner.batch({0: 30, 1: 8, 2: 70}, Mode.EXTEND)
        backend.init_forward_metadata(batch)
        o = backend.forward_extend(q, k, v, layer, batch)
        right = dict(softmax_scale=0.1, window_size=(5, 5), causal=False)
        close(o.view(-1, HEADS, DEPTH), right_of(served, rows, q.view(-1, HEADS, DEPTH), right))


def test_sglang_bits_do_not_depend_on_the_batch(monkeypatch):
    runner = Runner(64, enable_deterministic_inference=True)
    backend, layer = sglang(monkeypatch)(runner), sglang_layer()
    monkeypatch.setattr(sys.modules["sglang_backend"], "SPLIT_KEYS", 16)
    DenseSchedule.least_split = 64
    with torch.no_grad():
        for step in STEPS[:3]:
            batch, (q, k, v), served, rows = runner.batch(step, Mode.EXTEND)
            backend.init_forward_metadata(batch)
            together = backend.forward_extend(q, k, v, layer, batch)
            close(together.view(-1, HEADS, DEPTH), right_of(served, rows, q.view(-1, HEADS, DEPTH), PLAIN))
            first = 0
            for i, count in enumerate(rows):
                part = slice(i, i + 1)
                alone = types.SimpleNamespace(**{**vars(batch), "extend_seq_lens_cpu": [count]})
                alone.forward_mode = Mode.DECODE if count == 1 else Mode.EXTEND
                for name in ("req_pool_indices", "seq_lens", "extend_seq_lens"):
                    setattr(alone, name, getattr(batch, name)[part])
                backend.init_forward_metadata(alone)
                o = backend.forward_extend(q[first:first + count], None, None, layer, alone)
                assert o.equal(together[first:first + count])
                first += count
    if not ON_GPU:
        made = [(schedule.most, schedule.options["split_keys"]) for schedule in DenseSchedule.made]
        assert made == [((5, 96, 192), 64)]


def test_what_sglang_is_refused(monkeypatch):
    backend = sglang(monkeypatch)
    ngram = dict(speculative_algorithm="NGRAM", speculative_ngram_max_bfs_breadth=10)
    for arguments in (dict(topk=2), ngram):
        with pytest.raises(NotImplementedError, match="drafts in a tree need a mask"):
            backend(Runner(16, drafts=4, **arguments))
    backend(Runner(16, drafts=4, **{**ngram, "speculative_ngram_max_bfs_breadth": 1}))
    swa = types.SimpleNamespace(full_to_swa_index_mapping=None)
    for name, value, match in (("use_mla_backend", True, "latent elements"), ("attention_chunk_size", 8192, "a chunk"),
                               ("model_config", types.SimpleNamespace(is_encoder_decoder=True), "keys of an encoder"),
                               ("token_to_kv_pool", swa, "--disable-hybrid-swa-memory")):
        runner = Runner(16)
        setattr(runner, name, value)
        with pytest.raises(NotImplementedError, match=match):
            backend(runner)
    runner = Runner(16)
    made = backend(runner)
    batch, new, *_ = runner.batch({0: 3}, Mode.EXTEND)
    made.init_forward_metadata(batch)
    for match, wrong in (("decoder_bidirectional", {"attn_type": "decoder_bidirectional"}),
                         ("cross attention", {"is_cross_attention": True})):
        with pytest.raises(NotImplementedError, match=match):
            made.forward_extend(*new, sglang_layer(**wrong), batch)
