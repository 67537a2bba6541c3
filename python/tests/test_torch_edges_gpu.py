"""attn.torch on a GPU at its edges: gradients through lse, block masks, orders of dimensions, nothing to compute, and rows
past the last of packed sequences."""

import math

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU", allow_module_level=True)

from torch.nn.attention.flex_attention import BlockMask, create_block_mask  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attentions import merge  # noqa: E402

CAUSAL = "attention causal { dims B, Hq, Hkv, Sq, Skv, D; mask q_idx >= kv_idx; outputs o, lse; }"


def qkv(rows=256, keys=256, batch=2, grad=True):
    generator = torch.Generator("cuda").manual_seed(3)
    return [torch.randn(batch, heads, length, 64, generator=generator, device="cuda", dtype=torch.float32)
            .bfloat16().requires_grad_(grad) for heads, length in ((4, rows), (2, keys), (2, keys))]


def sinks(o, lse):
    return (o * torch.sigmoid(lse - 0.5)[..., None].to(o.dtype)).sum()


def dense(q, k, v):
    """o and lse of the causal attention, in double."""
    q, k, v = (x.double().repeat_interleave(4 // x.shape[1], 1) for x in (q, k, v))
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
    rows = torch.arange(q.shape[2], device=q.device)[:, None]
    scores = scores.masked_fill(rows < torch.arange(k.shape[2], device=q.device), float("-inf"))
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def near(found, expected):
    for x, y in zip(found, expected):
        assert (x.double() - y.double()).norm() <= 1e-2 * y.double().norm()


@pytest.mark.parametrize("traces", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 129, 256])
def test_gradients_through_lse(traces, rows):
    f = attn.compile(CAUSAL)
    run = torch.compile(lambda *x: f(*x), fullgraph=True) if traces else f
    q, k, v = qkv(rows, rows)
    for loss in (sinks, lambda o, lse: lse.square().sum(), lambda o, lse: o.float().sum() + (lse * 0).sum()):
        expected = torch.autograd.grad(loss(*dense(q, k, v)), (q, k, v), materialize_grads=True)
        for _ in range(3):  # the way of the first call, and the short one
            near(torch.autograd.grad(loss(*run(q, k, v)), (q, k, v)), expected)


def test_gradients_through_the_lse_of_packed_sequences():
    f = attn.compile("attention x { dims B = 3, Hq = 4, Hkv = 2, Sq = 129, Skv = 129, D = 64; layout thd;"
                     " mask q_idx >= kv_idx; outputs o, lse; }")
    q, k, v = (x[0].transpose(0, 1).detach().contiguous().requires_grad_() for x in qkv(136, 136))
    starts = torch.tensor([0, 7, 7, 136], dtype=torch.int32, device="cuda")
    o, lse = f(q, k, v, cu_seqlens_q=starts, cu_seqlens_kv=starts)
    weights = torch.randn_like(lse)
    found = torch.autograd.grad(o.float().sum() + (lse * weights).sum(), (q, k, v))
    expected = [torch.zeros_like(x, dtype=torch.float64) for x in (q, k, v)]
    for at in (slice(0, 7), slice(7, 136)):
        some = [x[at].transpose(0, 1)[None].detach().double().requires_grad_() for x in (q, k, v)]
        one, other = dense(*some)
        loss = one.sum() + (other[0].transpose(0, 1) * weights[at]).sum()
        for x, y in zip(expected, torch.autograd.grad(loss, some)):
            x[at] = y[0].transpose(0, 1)
    near(found, expected)


def test_a_row_without_a_key_ignores_the_gradient_of_its_lse():
    f = attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, D; mask q_idx > kv_idx; outputs o, lse; }")
    q, k, v = qkv()
    o, lse = f(q, k, v)
    d_lse = torch.ones_like(lse)
    d_lse[:, :, 0] = float("nan")
    for x in torch.autograd.grad((o, lse), (q, k, v), (torch.ones_like(o), d_lse)):
        assert x.isfinite().all()


def test_parts_that_are_merged_by_lse_are_one_attention():
    whole = attn.compile(CAUSAL)
    first, second = (attn.compile(CAUSAL.replace(">= kv_idx", f">= kv_idx + {begin}")) for begin in (0, 100))
    q, k, v = qkv()

    def run(q, k, v):
        return merge([first(q, k[:, :, :100], v[:, :, :100]), second(q, k[:, :, 100:], v[:, :, 100:])])

    found, expected = run(q, k, v), whole(q, k, v)
    near(found, expected)
    near(torch.autograd.grad(sinks(*found), (q, k, v)), torch.autograd.grad(sinks(*expected), (q, k, v)))


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_captured_backward_through_lse(weight):
    """Where nothing reached lse before, the check that it does not count is on the device."""
    f = attn.compile(CAUSAL)
    q, k, v = qkv()

    def step():
        o, lse = f(q, k, v)
        return torch.autograd.grad(o.float().sum() + (lse * weight).sum(), (q, k, v))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        expected = step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    graph.replay()
    torch.cuda.synchronize()
    for x, y in zip(found, expected):
        torch.testing.assert_close(x, y, atol=1e-2, rtol=1e-2)


def test_random_dropout_of_cudnn_has_no_gradient_through_lse():
    """Its kernels compute none, and others draw other numbers."""
    text = CAUSAL.replace("outputs", "dropout 0.5; outputs")
    q, k, v = qkv()
    o, lse = attn.compile(text, engine="cudnn")(q, k, v)
    with pytest.raises(attn.UnsupportedError, match="random numbers of this dropout"):
        lse.sum().backward()
    o, lse = attn.compile(text, engine="native")(q, k, v)
    expected = torch.autograd.grad(dense(q, k, v)[1].sum(), (q, k))
    near(torch.autograd.grad(lse.sum(), (q, k)), expected)


def test_a_capture_that_only_warm_was_before():
    """Each captured call makes a binding; the plans, and a handle of cuDNN's, are there."""
    f = attn.compile(CAUSAL)
    q, k, v = qkv()
    with pytest.raises(attn.BindingError, match="call it once before the capture"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            f(q, k, v)
    f.warm(training=True, B=2, Hq=4, Hkv=2, Sq=256, Skv=256, D=64)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = [torch.autograd.grad(f(q, k, v)[0].float().sum(), (q, k, v)) for _ in range(3)]
    graph.replay()
    torch.cuda.synchronize()
    expected = torch.autograd.grad(f(q, k, v)[0].float().sum(), (q, k, v))
    for each in found:
        for x, y in zip(each, expected):
            torch.testing.assert_close(x, y, atol=1e-2, rtol=1e-2)


def test_values_that_index_are_checked_before_a_capture():
    f = attn.compile("""attention tables { dims B, Hq, Hkv, Sq, Skv, D; tensor ids: i32[Skv]; tensor table: f32[16];
        score score + table[ids[kv_idx]]; outputs o; }""")
    q, k, v = qkv(grad=False)
    ids, table = torch.arange(256, device="cuda").int() % 16, torch.randn(16, device="cuda")
    f.warm(B=2, Hq=4, Hkv=2, Sq=256, Skv=256, D=64)
    with pytest.raises(attn.BindingError, match="call it once before the capture"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            f(q, k, v, ids=ids, table=table)
    expected = f(q, k, v, ids=ids, table=table)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = f(q, k, v, ids=ids, table=table)
    graph.replay()
    torch.testing.assert_close(found, expected, atol=0, rtol=0)


def test_block_masks():
    q, k, v = qkv(grad=False)
    ids = torch.arange(256, device="cuda").int() // 100

    def documents(b, h, q_idx, kv_idx):
        return (ids[q_idx] == ids[kv_idx]) & (q_idx >= kv_idx)

    made = create_block_mask(documents, None, None, 256, 256, device="cuda")
    for _ in range(2):
        found = attn.torch.flex_attention(q, k, v, block_mask=made, enable_gqa=True)
    assert torch.equal(found, attn.torch.flex_attention(q, k, v, mask_mod=documents, enable_gqa=True))
    counts = torch.ones(1, 1, 2, dtype=torch.int32, device="cuda")
    indices = torch.tensor([[[[0, 1], [1, 0]]]], dtype=torch.int32, device="cuda")
    with pytest.raises(attn.BindingError, match="block_mask hides a block"):
        attn.torch.flex_attention(q, k, v, block_mask=BlockMask.from_kv_blocks(counts, indices), enable_gqa=True)


def test_the_other_order_of_dimensions():
    f = attn.compile(CAUSAL, layout="bshd")
    q, k, v = (x.detach().transpose(1, 2).contiguous().requires_grad_() for x in qkv())
    expected, expected_lse = attn.compile(CAUSAL)(*(x.transpose(1, 2) for x in (q, k, v)))
    for _ in range(3):
        o, lse = f(q, k, v)
        assert o.is_contiguous() and torch.equal(o, expected.transpose(1, 2)) and torch.equal(lse, expected_lse)
    o.float().sum().backward()
    assert q.grad.shape == q.shape and q.grad.isfinite().all()


@pytest.mark.parametrize("batch, rows, keys", [(0, 5, 6), (2, 0, 6), (2, 5, 0)])
@pytest.mark.parametrize("traces", [False, True])
def test_nothing_to_compute(batch, rows, keys, traces):
    f = attn.compile(CAUSAL, builds=False)  # nothing is compiled
    q, k, v = qkv(rows, keys, batch)
    o, lse = (torch.compile(lambda *x: f(*x), fullgraph=True) if traces else f)(q, k, v)
    assert o.shape == q.shape and (o == 0).all() and (lse == -math.inf).all()
    o.float().sum().backward()
    assert all(x.grad.shape == x.shape and (x.grad == 0).all() for x in (q, k, v))


@pytest.mark.parametrize("traces", [False, True])
def test_rows_past_the_last_sequence(traces):
    lengths, more = torch.tensor([300, 0, 129, 1, 77]), 45
    ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    last = int(ends[-1])
    f = attn.compile("attention packed { dims B = 5, Hq = 4, Hkv = 2, Sq = 300, D = 64; layout thd;"
                     " mask q_idx >= kv_idx; outputs o, lse; }")
    located = {"cu_seqlens_q": ends.cuda(), "cu_seqlens_kv": ends.cuda()}
    generator = torch.Generator("cuda").manual_seed(1)
    long = [torch.randn(last + more, heads, 64, generator=generator, device="cuda").bfloat16() for heads in (4, 2, 2)]
    short = [x[:last].clone().requires_grad_() for x in long]
    long = [x.requires_grad_() for x in long]
    run = torch.compile(lambda *x: f(*x, **located), fullgraph=True) if traces else (lambda *x: f(*x, **located))
    expected, expected_lse = f(*short, **located)
    garbage = [torch.full_like(x, math.nan) for x in long]  # for the allocator to give again
    del garbage
    for _ in range(3):
        o, lse = run(*long)
        assert o.shape == long[0].shape and (o[last:] == 0).all() and (lse[last:] == -math.inf).all()
        torch.testing.assert_close(o[:last], expected)
        torch.testing.assert_close(lse[:last], expected_lse)
        found = torch.autograd.grad(o.float().square().sum(), long)
        wanted = torch.autograd.grad(expected.float().square().sum(), short, retain_graph=True)
        for x, y in zip(found, wanted):
            torch.testing.assert_close(x[:last], y, atol=2e-2, rtol=2e-2)
            assert (x[last:] == 0).all()
