"""attn.torch.flex_attention as a drop-in on a GPU: strides, blocks, programs that are compiled, CUDA graphs and
torch.func, beside a dense evaluation in float64."""

import copy
import itertools
import math

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU", allow_module_level=True)

from torch.func import grad, vmap  # noqa: E402
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attn.torch import blocks  # noqa: E402
from attn.trace import trace  # noqa: E402
from attn.tracing.recipes import sources  # noqa: E402
from mods import MODS, B, H, S  # noqa: E402

DEVICE, DTYPE = "cuda", torch.bfloat16
flex_attention = attn.torch.flex_attention


def laid_out(order, shape, seed=0):
    """A tensor whose dims have this order in memory."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn([shape[dim] for dim in order], generator=generator).to(DEVICE, DTYPE)
    return made.permute([order.index(dim) for dim in range(4)])


def qkv(batch=2, heads=4, key_heads=4, rows=160, keys=160, depth=64):
    return [laid_out((0, 1, 2, 3), shape, seed).requires_grad_() for seed, shape in enumerate(
        ((batch, heads, rows, depth), (batch, key_heads, keys, depth), (batch, key_heads, keys, depth)))]


def dense(q, k, v, visible, bias=None):
    """In float64; `visible` [.., Sq, Skv], `bias` added to scores."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    score = score if bias is None else score + bias
    score = torch.where(visible, score, -1e300)
    return (score.softmax(-1) * visible) @ v


def lower(rows, keys=None):
    keys = rows if keys is None else keys
    return torch.arange(rows, device=DEVICE)[:, None] >= torch.arange(keys, device=DEVICE)


def close(found, wanted, bound=2e-2):
    found, wanted = found.double(), wanted.double()
    assert found.shape == wanted.shape and bool(found.isfinite().all())
    assert (found - wanted).norm() <= bound * wanted.norm().clamp_min(1e-12)


def check(run, wanted, leaves):
    """The output of a call and the gradients of leaves, beside those of a dense one."""
    o, exact = run(), wanted()
    d_o = torch.randn(o.shape, generator=torch.Generator().manual_seed(9)).to(o.device, o.dtype)
    close(o, exact)
    found = torch.autograd.grad(o, leaves, d_o)
    for x, y in zip(found, torch.autograd.grad(exact, leaves, d_o.double())):
        close(x, y)
    return o, found


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def windowed(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < 40)


# --- strides


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::3])
def test_orders(order):
    q, k, v = (laid_out(order, (2, 4, 160, 64), seed).requires_grad_() for seed in range(3))
    o, found = check(lambda: flex_attention(q, k, v, mask_mod=causal), lambda: dense(q, k, v, lower(160)), [q, k, v])
    for x in (o, *found):
        steps = [x.stride(dim) for dim in order if dim != 3]
        assert steps == sorted(steps, reverse=True) and x.stride(3) == 1


CASES = {
    "misaligned": lambda: [torch.randn(2 * 4 * 160 * 64 + 1, device=DEVICE).to(DTYPE)[1:].view(2, 4, 160, 64)
                           for _ in range(3)],
    "gaps": lambda: list(torch.randn(2, 160, 3, 4, 64, device=DEVICE).to(DTYPE).permute(2, 0, 3, 1, 4)),
    "misaligned gaps": lambda: [x.as_strided(x.shape, x.stride(), x.storage_offset() + 4) for x in torch.randn(
        2, 160, 4, 4, 64, device=DEVICE).to(DTYPE).permute(2, 0, 3, 1, 4)[:3]],
    "elements apart": lambda: [torch.randn(2, 4, 160, 128, device=DEVICE).to(DTYPE)[..., ::2] for _ in range(3)],
    "one head for all": lambda: [torch.randn(2, 1, 160, 64, device=DEVICE).to(DTYPE).expand(2, 4, 160, 64)
                                 for _ in range(3)],
    "odd rows": lambda: [torch.randn(2, 4, 160, 67, device=DEVICE).to(DTYPE)[..., :64] for _ in range(3)],
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_what_kernels_cannot_read(case, compiled):
    q, k, v = (x.detach().requires_grad_() for x in CASES[case]())
    torch._dynamo.reset()
    run = torch.compile(flex_attention, fullgraph=True) if compiled else flex_attention
    for _ in range(2):  # the second call is a repeated one
        check(lambda: run(q, k, v, mask_mod=causal), lambda: dense(q, k, v, lower(160)), [q, k, v])


def test_gradients_of_any_strides():
    q, k, v = qkv()
    exact = dense(q, k, v, lower(160))
    for d_o in (laid_out((3, 2, 1, 0), q.shape), torch.ones(1, device=DEVICE, dtype=DTYPE).expand(q.shape),
                torch.randn(q.numel() + 1, device=DEVICE).to(DTYPE)[1:].view(q.shape)):
        found = torch.autograd.grad(flex_attention(q, k, v, mask_mod=causal), (q, k, v), d_o)
        for x, y in zip(found, torch.autograd.grad(exact, (q, k, v), d_o.double(), retain_graph=True)):
            close(x, y)


def test_captured_tensors_of_any_strides():
    table = torch.randn(160, 161, 4, device=DEVICE).permute(2, 1, 0)[:, 1:].requires_grad_()
    documents = (torch.arange(320, device=DEVICE) // 70)[::2]
    q, k, v = qkv()

    def bias(score, b, h, q_idx, kv_idx):
        return score + table[h, q_idx, kv_idx]

    def same(b, h, q_idx, kv_idx):
        return documents[q_idx] == documents[kv_idx]

    visible = documents[:, None] == documents
    check(lambda: flex_attention(q, k, v, bias, mask_mod=same), lambda: dense(q, k, v, visible, table.double()),
          [q, k, v, table])


def test_numbers_of_the_cpu():
    q, k, v = qkv()
    slope, shift = torch.tensor(0.02, requires_grad=True), torch.tensor(3)
    i = torch.arange(160, device=DEVICE)

    def bias(score, b, h, q_idx, kv_idx):
        return score + slope * (kv_idx - q_idx)

    def run():
        return flex_attention(q, k, v, bias, mask_mod=lambda b, h, q_idx, kv_idx: q_idx + shift >= kv_idx)

    check(run, lambda: dense(q, k, v, i[:, None] + 3 >= i, slope.double() * (i - i[:, None])), [q, k, v, slope])


@pytest.mark.parametrize("key_heads", [4, 1])
def test_keys_of_one_batch(key_heads):
    q, *_ = qkv(3, key_heads=key_heads)
    _, k, v = qkv(1, key_heads=key_heads)
    check(lambda: flex_attention(q, k, v, mask_mod=causal, enable_gqa=True),
          lambda: dense(q, k.expand(3, -1, -1, -1), v.expand(3, -1, -1, -1), lower(160)), [q, k, v])


def test_aux():
    q, k, v = qkv()
    o, aux = flex_attention(q, k, v, mask_mod=causal, return_aux=AuxRequest(lse=True, max_scores=True))
    score = (q.double() @ k.double().transpose(-1, -2) / 8).masked_fill(~lower(160), -math.inf)
    close(aux.lse, score.logsumexp(-1), 1e-3)
    close(aux.max_scores, score.amax(-1), 1e-3)
    assert o.requires_grad and aux.lse.requires_grad and not aux.max_scores.requires_grad


# --- blocks


def top(count, down, across, batches=1, heads=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    indices = torch.rand(batches, heads, down, across, generator=generator).argsort(-1).int()
    return torch.full((batches, heads, down), count, dtype=torch.int32, device=DEVICE), indices.to(DEVICE)


def seen(block_mask, visible):
    """What a block mask shows. `visible`: what its mask_mod does."""
    rows, keys = block_mask.BLOCK_SIZE
    i, j = torch.arange(visible.shape[-2], device=DEVICE), torch.arange(visible.shape[-1], device=DEVICE)

    def of(counts, indices):
        listed = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=block_mask.BLOCK_SIZE,
                                          seq_lengths=block_mask.seq_lengths).to_dense().bool()
        return listed[:, :, i[:, None] // rows, j // keys]

    found = of(block_mask.kv_num_blocks, block_mask.kv_indices) & visible
    if block_mask.full_kv_num_blocks is not None:
        found = found | of(block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
    return found


@pytest.mark.parametrize("mask_mod", [None, causal])
@pytest.mark.parametrize("size", [128, 64, 16, (128, 32), (32, 128), (40, 24), 1000])
@pytest.mark.parametrize("batches, heads", [(1, 1), (2, 4), (1, 4)])
def test_blocks_that_were_chosen(size, mask_mod, batches, heads):
    rows, keys = (size, size) if isinstance(size, int) else size
    q, k, v = qkv(rows=300, keys=520)
    lists = top(max(1, -(-520 // keys) // 2), -(-300 // rows), -(-520 // keys), batches, heads)
    block_mask = BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=(300, 520))
    visible = seen(block_mask, lower(300, 520) if mask_mod else torch.ones(300, 520, dtype=torch.bool, device=DEVICE))
    check(lambda: flex_attention(q, k, v, block_mask=block_mask), lambda: dense(q, k, v, visible), [q, k, v])
    torch._dynamo.reset()
    run = torch.compile(flex_attention, fullgraph=True)
    check(lambda: run(q, k, v, block_mask=block_mask), lambda: dense(q, k, v, visible), [q, k, v])


def test_full_blocks_count_whole():
    q, k, v = qkv(rows=512, keys=512)
    partial, full = top(1, 4, 4), top(1, 4, 4, seed=1)
    full[1][..., 0] = (partial[1][..., 0] + 1) % 4
    block_mask = BlockMask.from_kv_blocks(*partial, *full, BLOCK_SIZE=128, mask_mod=windowed, seq_lengths=(512, 512))
    i = torch.arange(512, device=DEVICE)
    visible = seen(block_mask, lower(512) & (i[:, None] - i < 40))
    check(lambda: flex_attention(q, k, v, block_mask=block_mask), lambda: dense(q, k, v, visible), [q, k, v])


def test_blocks_that_follow_from_the_mask_make_no_other_plan(monkeypatch):
    texts, spec = set(), attn.torch.flex.Spec
    attn.torch.flex._kept.clear()
    monkeypatch.setattr(attn.torch.flex, "Spec", lambda text, **rest: (texts.add(text), spec(text, **rest))[1])
    q, k, v = qkv(rows=512, keys=512)
    block_mask = create_block_mask(windowed, None, None, 512, 512)
    for _ in range(3):
        flex_attention(q, k, v, block_mask=block_mask)
    assert len(texts) == 1 and "blocks" not in texts.pop()


@pytest.mark.parametrize("mask_mod", [None, causal])
def test_a_graph_reads_the_lists_when_it_is_replayed(mask_mod):
    q, k, v = (x.detach() for x in qkv(rows=512, keys=512))
    block_mask = BlockMask.from_kv_blocks(*top(2, 4, 4), BLOCK_SIZE=128, mask_mod=mask_mod, seq_lengths=(512, 512))
    everything = lower(512) if mask_mod else torch.ones(512, 512, dtype=torch.bool, device=DEVICE)

    def run():
        return flex_attention(q, k, v, block_mask=block_mask)

    run()
    with torch.no_grad():
        other = copy.copy(block_mask)  # which was not compared: the graph makes the tensor of blocks
        blocks._known.pop(id(other), None)
        block_mask = other
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = run()
    for count in (1, 3, 2):
        block_mask.kv_num_blocks.fill_(count)
        block_mask.kv_indices.copy_(top(count, 4, 4, seed=count)[1])
        graph.replay()
        close(o, dense(q, k, v, seen(block_mask, everything)))


# --- programs that are compiled


@pytest.mark.parametrize("name", MODS)
def test_mods_without_a_graph_break(name):
    compare_compiled(name, "aot_eager")


@pytest.mark.parametrize("name", list(MODS)[::8])
def test_mods_by_inductor(name):
    compare_compiled(name, "inductor")


def compare_compiled(name, backend):
    """With gradients of q, k, v and learned tensors, as without torch.compile."""
    with torch.device(DEVICE):
        score_mod, mask_mod = MODS[name]()
    known = trace(score_mod, mask_mod, B=B, Hq=H, Hkv=H // 2, Sq=S, Skv=S, Dqk=64, Dv=64)
    captured = {id(s.value): s.value for each in known.learned for s in sources(known.recipes[each])}
    q, k, v = qkv(B, H, H // 2, S, S)

    def run(q, k, v):
        return flex_attention(q, k, v, score_mod, mask_mod=mask_mod, enable_gqa=True)

    torch._dynamo.reset()
    leaves = [q, k, v, *captured.values()]
    found, wanted = torch.compile(run, backend=backend, fullgraph=True)(q, k, v), run(q, k, v)
    close(found, wanted, 1e-2)
    d_o = torch.randn_like(wanted)
    for x, y in zip(*(torch.autograd.grad(o, leaves, d_o, allow_unused=True) for o in (found, wanted))):
        assert (x is None) == (y is None)
        if x is not None:
            close(x, y, 1e-2)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(256, 768, dtype=DTYPE, device=DEVICE)
        self.slopes = torch.nn.Parameter(torch.full((4,), 0.01, device=DEVICE))

    def bias(self, score, b, h, q_idx, kv_idx):
        return score + self.slopes[h] * (kv_idx - q_idx)

    def forward(self, x, block_mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 64)).permute(2, 0, 3, 1, 4)
        return x + flex_attention(q, k, v, self.bias, block_mask).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("options", [{}, {"mode": "reduce-overhead"}, {"dynamic": True}])
def test_a_layer(options):
    torch._dynamo.reset()
    model = Layer()
    compiled = torch.compile(model, fullgraph=True, **options)
    for rows in (256, 512) if "dynamic" in options else (256, 256, 256, 256):
        x = torch.randn(2, rows, 256, device=DEVICE, dtype=DTYPE)
        block_mask = create_block_mask(windowed, None, None, rows, rows)
        gradients = []
        for run in (compiled, model):
            model.zero_grad()
            o = run(x, block_mask)
            o.float().square().sum().backward()
            gradients.append((o.detach().clone(), *(p.grad.clone() for p in model.parameters())))
        for found, wanted in zip(*gradients):
            close(found, wanted, 1e-2)


def test_reduced_overhead_of_inference():
    torch._dynamo.reset()
    q, k, v = (x.detach() for x in qkv(rows=256, keys=256))
    block_mask = create_block_mask(causal, None, None, 256, 256)
    compiled = torch.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=block_mask) * 1, mode="reduce-overhead",
                             fullgraph=True)
    with torch.no_grad():
        for _ in range(5):
            torch.compiler.cudagraph_mark_step_begin()
            close(compiled(q, k, v), dense(q, k, v, lower(256)))


# --- torch.func, and copies


def test_transformations():
    q, k, v = (x.detach() for x in qkv())
    both = (lambda q: flex_attention(q, k, v, mask_mod=causal), lambda q: dense(q, k, v, lower(160)))
    found, wanted = (grad(lambda q, f=f: f(q).double().square().sum())(q) for f in both)
    close(found, wanted)
    many = torch.stack([q, -q, q * 2], 2)
    close(vmap(lambda q: flex_attention(q, k, v, mask_mod=causal), 2)(many),
          torch.stack([dense(each, k, v, lower(160)) for each in many.unbind(2)]))
    close(vmap(grad(lambda q: flex_attention(q, k, v, mask_mod=causal).double().square().sum()), 2, 2)(many)[:, :, 0],
          wanted)


def test_copies_share_the_plans():
    f = attn.compile("attention c { dims B, Hq, Hkv, Sq, Skv, D; mask q_idx >= kv_idx; }")
    q, k, v = qkv()
    o = f(q, k, v)
    g = copy.deepcopy(f)
    assert g._torch_facts is f._torch_facts
    close(g(q, k, v), o, 1e-6)


def test_a_layer_of_learned_tensors_is_moved():
    layer = attn.torch.Attention("attention bias { dims B, Hq, Hkv, Sq, Skv, D; learn slopes: f32[Hq];"
                                 " score score + slopes[h] * (kv_idx - q_idx); mask q_idx >= kv_idx; }", Hq=4,
                                 learned={"slopes": torch.full((4,), 0.01)}).to(DEVICE)
    q, k, v = qkv()
    i = torch.arange(160, device=DEVICE)
    check(lambda: layer(q, k, v), lambda: dense(q, k, v, lower(160), layer.slopes.double()[:, None, None] * (
        i - i[:, None])), [q, k, v, layer.slopes])
