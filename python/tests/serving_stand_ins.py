"""What the tests of the backends of examples/serving share: requests are served step by step, and each row compared
with dense attention over what its request has. On a GPU by attnc's kernels; without one, dense attention takes their
place, which looks at what the backends give to it."""

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
    least_split = 0  # of which there are not too many parts
    builds = 0

    def __init__(self, q, k_cache, v_cache, block_table, *, max_seqlen_q, max_seqlen_k, **options):
        if 0 < options.get("split_keys", 0) < DenseSchedule.least_split:
            raise attn.ArgumentError("parts of split_keys keys are too many")
        self.most = len(block_table), max_seqlen_q, max_seqlen_k
        self.options, self.columns = options, block_table.shape[1]
        DenseSchedule.made.append(self)

    def build(self, cu_seqlens_q, seqused_k, num_sequences=None, shared_keys=0):
        assert len(seqused_k) <= self.most[0] and len(cu_seqlens_q) == len(seqused_k) + 1
        assert cu_seqlens_q.diff().max() <= self.most[1] and seqused_k.max() <= self.most[2]
        self.lengths = cu_seqlens_q.clone(), seqused_k.clone()
        self.shared_keys = shared_keys
        DenseSchedule.builds += 1


def dense_varlen(q, k_cache, v_cache, *, cu_seqlens_q, seqused_k, block_table, max_seqlen_q, max_seqlen_k, out,
                 schedule, return_lse=False, **options):
    assert schedule.lengths[0].equal(cu_seqlens_q) and schedule.lengths[1].equal(seqused_k)
    assert schedule.most[1:] == (max_seqlen_q, max_seqlen_k)
    assert return_lse == schedule.options.get("return_lse", False)
    for name, value in options.items():
        assert value is schedule.options.get(name) or value == schedule.options[name]
    assert all(x.dtype == torch.int32 for x in (cu_seqlens_q, seqused_k, block_table))
    assert block_table.shape[1] >= schedule.columns and block_table.stride(0) >= block_table.shape[1]
    lse = torch.full(out.shape[:2], -torch.inf)
    for sequence, (first, end) in enumerate(zip(cu_seqlens_q.tolist(), cu_seqlens_q[1:].tolist())):
        keys, page = int(seqused_k[sequence]), k_cache.shape[1]
        pages = block_table[sequence, :-(-keys // page)].long()
        k, v = (cache[pages].flatten(0, 1)[:keys] for cache in (k_cache, v_cache))
        out[first:end], lse[first:end] = dense_with_lse(q[first:end], k, v, **options)
    return (out, lse) if return_lse else out


def dense_append(k, v, k_cache, v_cache, slots):
    page, kept = k_cache.shape[1], slots >= 0
    assert slots.dtype == torch.int64
    for new, cache in ((k, k_cache), (v, v_cache)):
        cache[slots[kept] // page, slots[kept] % page] = new[kept]
    return None


def dense_merge(o_a, lse_a, o_b, lse_b, *, out):
    lse = torch.logaddexp(lse_a, lse_b)
    weights = [torch.exp(part - lse).nan_to_num(0.0)[..., None] for part in (lse_a, lse_b)]
    return out.copy_(weights[0] * o_a + weights[1] * o_b), lse


def dense(q, k, v, **options):
    return dense_with_lse(q, k, v, **options)[0]


def dense_with_lse(q, k, v, softmax_scale, window_size, causal=True, softcap=0.0, s_aux=None, alibi_slopes=None):
    """Attention of one sequence, q [rows, Hq, D], k and v [keys, Hkv, D]; in q's type, and lse [rows, Hq]."""
    rows, keys, group = len(q), len(k), q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    s = torch.einsum("qhd,khd->hqk", q.double(), k) * softmax_scale
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    past = torch.arange(keys - rows, keys, device=q.device)[:, None] - torch.arange(keys, device=q.device)
    if alibi_slopes is not None:
        s = s - alibi_slopes.double()[:, None, None] * past.abs()
    left, right = window_size
    right = 0 if causal else right
    s = s.masked_fill(((past > left) & (left >= 0)) | ((-past > right) & (right >= 0)), -torch.inf)
    if s_aux is not None:
        s = torch.cat([s, s_aux.double()[:, None, None].expand(-1, rows, 1)], -1)
    lse = torch.logsumexp(s, -1)
    weights = torch.exp(s - lse[..., None]).nan_to_num(0.0)[..., :keys]
    return torch.einsum("hqk,khd->qhd", weights, v).to(q.dtype), lse.t().float()


@pytest.fixture(autouse=True)
def dense_without_a_gpu(monkeypatch):
    DenseSchedule.made, DenseSchedule.builds, DenseSchedule.least_split = [], 0, 0
    monkeypatch.syspath_prepend(str(FOLDER))
    if not ON_GPU:
        monkeypatch.setattr(attn.torch, "Schedule", DenseSchedule)
        monkeypatch.setattr(attn.torch, "varlen_attention", dense_varlen)
        monkeypatch.setattr(attn.torch, "append", dense_append)
        monkeypatch.setattr(attn.torch, "merge", dense_merge)


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


def right_of(served, rows, q, options):
    parts = q[:sum(rows)].split(rows)
    return torch.cat([dense(part, request.k, request.v, **options) for part, request in zip(parts, served)])


PLAIN = dict(softmax_scale=0.1, window_size=(-1, -1))
