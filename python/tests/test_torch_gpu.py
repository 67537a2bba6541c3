"""attn.torch on a GPU, beside PyTorch's own FlexAttention and a dense float64 evaluation."""

import concurrent.futures
import math
import os

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU", allow_module_level=True)

from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attn.trace import trace  # noqa: E402
from attn.tracing.recipes import sources  # noqa: E402
from mods import MODS, B, H, S  # noqa: E402

LAYOUTS = ("bhsd", "bshd")


def make(shape, layout="bhsd", dtype=torch.bfloat16, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    if layout == "bshd":
        shape = (shape[0], shape[2], shape[1], shape[3])
    x = torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32).to(dtype)
    x = x.transpose(1, 2) if layout == "bshd" else x
    return x.detach().requires_grad_()


def inputs(batch, heads, key_heads, rows, columns, depth, layout="bhsd", dtype=torch.bfloat16):
    return (
        make((batch, heads, rows, depth), layout, dtype, 1),
        make((batch, key_heads, columns, depth), layout, dtype, 2),
        make((batch, key_heads, columns, depth), layout, dtype, 3),
    )


def difference(x, y):
    """Relative L2 distance; infinity if either is not finite."""
    x, y = x.double(), y.double()
    found = ((x - y).norm() / y.norm().clamp_min(1e-30)).item()
    return found if math.isfinite(found) else math.inf


def dense(q, k, v, score_mod=None, mask_mod=None, scale=None):
    """In float64, with gradients."""
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    score = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    places = [torch.arange(n, device="cuda") for n in score.shape]
    if score_mod is not None:
        score = every(score_mod, score, *places)
    if mask_mod is not None:
        score = torch.where(every(mask_mod, None, *places), score, -math.inf)
    return torch.nan_to_num(torch.softmax(score, -1)) @ v


def every(mod, score, *places):
    """A mod for one score, applied to all [B, H, S, S]: by vmap, or, if an operation of it has none, by
    tensors that broadcast."""
    mapped = mod
    for axis in range(3, -1, -1):
        dims = tuple(0 if place == axis else None for place in range(4))
        mapped = torch.vmap(mapped, in_dims=dims if score is None else (0, *dims))
    first = () if score is None else (score,)
    try:
        return mapped(*first, *places)
    except (RuntimeError, ValueError):
        wide = [place.view([-1 if i == axis else 1 for i in range(4)]) for axis, place in enumerate(places)]
        return mod(*first, *wide)


@pytest.fixture(scope="module")
def plans_at_hand():
    """The plans of all mods, compiled by several processes at once; later calls find them in the cache."""

    def build(name):
        with torch.device("cuda"):
            score_mod, mask_mod = MODS[name]()
        q, k, v = inputs(B, H, H // 2, S, S, 64)
        try:
            attn.torch.flex_attention(q, k, v, score_mod, mask_mod=mask_mod, enable_gqa=True)
        except attn.Error:
            pass  # the test of this mod says it

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(build, MODS))


@pytest.mark.usefixtures("plans_at_hand")
@pytest.mark.parametrize("name", MODS)
def test_mods_agree_with_flex_attention_and_float64(name):
    """The mods of published examples, unchanged: o and the gradients of q, k, v and learned tensors."""
    with torch.device("cuda"):
        score_mod, mask_mod = MODS[name]()
    traced = trace(score_mod, mask_mod, B=B, Hq=H, Hkv=H // 2, Sq=S, Skv=S, Dqk=64, Dv=64)
    captured = [source.value for name in traced.learned for source in sources(traced.recipes[name])]
    learned = list({id(tensor): tensor for tensor in captured}.values())
    q, k, v = inputs(B, H, H // 2, S, S, 64)
    leaves = [q, k, v, *learned]
    o = attn.torch.flex_attention(q, k, v, score_mod, mask_mod=mask_mod, enable_gqa=True)
    d_o = make(o.shape, seed=4).detach()
    ours = [o, *torch.autograd.grad(o, leaves, d_o, retain_graph=True)]
    try:
        block_mask = None if mask_mod is None else create_block_mask(mask_mod, B, H, S, S)
        flex = flex_attention(q, k, v, score_mod, block_mask, enable_gqa=True)
        theirs = [flex, *torch.autograd.grad(flex, leaves, d_o, retain_graph=True)]
    except Exception as error:  # some mods are more than it takes, as it is called without torch.compile
        print(f"\nFlexAttention fails with {name}: {type(error).__name__}")
        theirs = [torch.full_like(each, math.nan) for each in ours]
    with torch.device("cuda"):
        exact = dense(q, k, v, score_mod, mask_mod)
    truth = [exact, *torch.autograd.grad(exact, leaves, d_o.double(), retain_graph=True)]
    names = ["o", "dq", "dk", "dv", *(f"learned{place}" for place in range(len(learned)))]
    row = [(n, difference(a, t), difference(f, t)) for n, a, f, t in zip(names, ours, theirs, truth)]
    print(f"\nMOD {name:28}", *(f"{n} {a:.1e} ({f:.1e})" for n, a, f in row))
    for name, mine, flexs in row:
        bound = max(1.5e-2, 2 * flexs) if math.isfinite(flexs) else 1.5e-2
        assert mine < bound, f"{name}: {mine:.2e}, FlexAttention {flexs:.2e}"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
@pytest.mark.parametrize("sizes", ((1, 1, 1, 1, 7, 64), (2, 5, 1, 129, 777, 64), (3, 4, 2, 777, 1001, 128)))
def test_sizes_strides_and_dtypes(sizes, dtype, layout):
    q, k, v = inputs(*sizes, layout=layout, dtype=dtype)

    def mask(b, h, q_idx, kv_idx):
        return q_idx + 3 >= kv_idx

    o = attn.torch.flex_attention(q, k, v, mask_mod=mask, enable_gqa=True)
    assert o.stride() == torch.empty_like(q).stride()
    exact = dense(q, k, v, mask_mod=mask)
    d_o = torch.randn_like(o)
    found = [o, *torch.autograd.grad(o, (q, k, v), d_o)]
    truth = [exact, *torch.autograd.grad(exact, (q, k, v), d_o.double())]
    for name, x, y in zip(("o", "dq", "dk", "dv"), found, truth):
        assert (x.double() - y).abs().max() < 5e-2 * y.abs().max() + 1e-6, name


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


class Block(torch.nn.Module):
    def __init__(self, width=256, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width, device="cuda", dtype=torch.bfloat16)
        self.out = torch.nn.Linear(width, width, device="cuda", dtype=torch.bfloat16)
        self.slopes = torch.nn.Parameter(torch.full((heads,), -0.1, device="cuda"))
        self.attend = attn.compile(
            "attention alibi { dims B, Hq, Sq, D; learn slopes: f32[Hq];"
            " score score + slopes[h] * (q_idx - kv_idx); mask q_idx >= kv_idx; }"
        )

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        o = self.attend(q, k, v, slopes=self.slopes)
        return x + self.out(o.transpose(1, 2).flatten(2))


def two_layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(Block(), Block())


def test_compiled_without_graph_break():
    model, x = two_layers(), torch.randn(2, 256, 256, device="cuda", dtype=torch.bfloat16)
    expected = model(x)
    compiled = torch.compile(model, fullgraph=True)
    o = compiled(x)
    assert difference(o, expected) < 1e-2
    o.float().square().sum().backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).float().square().sum().backward()
    for (name, p), mine in zip(model.named_parameters(), found):
        assert difference(mine, p.grad) < 3e-2, name


def test_exported():
    model, x = two_layers(), torch.randn(2, 256, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        program = torch.export.export(model, (x,))
        torch.testing.assert_close(program.module()(x), model(x))


def test_captured_into_a_cuda_graph():
    model, x = two_layers(), torch.randn(2, 256, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            model(x)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = model(x)
        for seed in range(3):
            x.copy_(torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)))
            graph.replay()
            torch.testing.assert_close(o, model(x), atol=0, rtol=0)


def test_gradients_are_bitwise_equal_in_deterministic_mode():
    q, k, v = inputs(2, 8, 2, 777, 777, 128)
    torch.use_deterministic_algorithms(True)
    try:
        found = []
        for _ in range(5):
            o = attn.torch.flex_attention(q, k, v, mask_mod=causal, enable_gqa=True)
            found.append(torch.autograd.grad(o.float().sum(), (q, k, v)))
    finally:
        torch.use_deterministic_algorithms(False)
    for other in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(found[0], other))


def test_dropout_is_repeated_by_the_seed_and_differs_without():
    q, k, v = inputs(1, 4, 4, 256, 256, 64)
    run = lambda: attn.torch.flex_attention(q, k, v, dropout_p=0.2)  # noqa: E731
    torch.manual_seed(5)
    first, second = run(), run()
    torch.manual_seed(5)
    assert torch.equal(first, run())
    assert not torch.equal(first, second)
    assert difference(sum(run().float() for _ in range(64)) / 64, dense(q, k, v)) < 0.1


def test_streams_and_threads():
    q, k, v = inputs(1, 4, 4, 512, 512, 64)
    with torch.no_grad():
        expected = attn.torch.flex_attention(q, k, v, mask_mod=causal)

        def work(_):
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
                o = [attn.torch.flex_attention(q, k, v, mask_mod=causal) for _ in range(20)]
                torch.cuda.current_stream().synchronize()
                return o

        torch.cuda.synchronize()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for outputs in pool.map(work, range(16)):
                assert all(torch.equal(o, expected) for o in outputs)


def test_misaligned_and_strange_strides_are_copied():
    q, k, v = (x.detach() for x in inputs(1, 2, 2, 64, 64, 64))
    expected = attn.torch.flex_attention(q, k, v)
    flat = torch.empty(q.numel() + 1, device="cuda", dtype=q.dtype)
    shifted = flat[1:].view(q.shape).copy_(q)
    assert shifted.data_ptr() % 16 != 0
    assert torch.equal(attn.torch.flex_attention(shifted, k, v), expected)
    columns = q.transpose(2, 3).contiguous().transpose(2, 3)
    assert torch.equal(attn.torch.flex_attention(columns, k, v), expected)


def test_expanded_tensors_are_copied_and_share_the_plans_of_others():
    """Their stride of 0 is none of a kernel's rows."""
    q, k, v = (x.detach() for x in inputs(2, 4, 2, 64, 64, 64))
    f = attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, D; mask q_idx >= kv_idx; }", builds=False)
    f.warm(training=True, layout="bhsd", B=2, Hq=4, Hkv=2, Sq=64, Skv=64, D=64)
    parts = [q[:1].clone().requires_grad_(), k[:, :1].clone().requires_grad_(), v[:1, :1].clone().requires_grad_()]
    shown = [x.expand(shape.shape) for x, shape in zip(parts, (q, k, v))]
    expected = dense(*shown, mask_mod=causal)
    o = f(*shown)
    assert difference(o, expected) < 1e-2
    for x, y in zip(*(torch.autograd.grad(each.float().square().sum(), parts) for each in (o, expected))):
        assert x.shape == y.shape and difference(x, y) < 2e-2


def test_packed_sequences():
    """Forward and gradients, beside each sequence alone."""
    lengths = torch.tensor([300, 0, 129, 1, 77])
    ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    f = attn.compile(
        "attention packed { dims B = 5, Hq = 4, Hkv = 2, Sq = 300, D = 64; layout thd; mask q_idx >= kv_idx;"
        " outputs o, lse; }"
    )
    q, k, v = (make((int(ends[-1]), heads, 64), seed=heads) for heads in (4, 2, 2))
    located = {"cu_seqlens_q": ends.cuda(), "cu_seqlens_kv": ends.cuda()}
    for _ in range(3):  # the way of the first call, and the short ones
        o, lse = f(q, k, v, **located)
    assert o.shape == q.shape and lse.shape == q.shape[:2]
    places = [slice(first, last) for first, last in zip(ends, ends[1:]) if first < last]
    exact = torch.cat([
        dense(*(x[place].transpose(0, 1)[None] for x in (q, k, v)), mask_mod=causal)[0].transpose(0, 1)
        for place in places
    ])
    d_o = make(o.shape, seed=9).detach()
    found = [o, *torch.autograd.grad(o, (q, k, v), d_o)]
    truth = [exact, *torch.autograd.grad(exact, (q, k, v), d_o.double())]
    for name, x, y in zip(("o", "dq", "dk", "dv"), found, truth):
        assert difference(x, y) < 1.5e-2, name


def test_pages():
    """A pool with fewer pages than the plan's, lengths that grow, and one that has too many."""
    f = attn.compile(
        "attention paged { dims B = 3, Hq = 8, Hkv = 2, Sq = 1, Skv = 300, D = 64; align bottom_right;"
        " layout paged(page = 64, pages = 40); lengths kv; mask q_idx >= kv_idx; }"
    )
    table = torch.randperm(20, device="cuda")[:15].reshape(3, 5).int()
    shapes = ((3, 8, 1, 64), (20, 2, 64, 64), (20, 2, 64, 64))
    q, k, v = (make(shape, seed=seed).detach() for seed, shape in enumerate(shapes))
    for lengths in ((1, 64, 300), (2, 65, 299), (64, 100, 7)):
        o = f(q, k, v, page_table=table, lengths_kv=torch.tensor(lengths, device="cuda", dtype=torch.int32))
        for b, length in enumerate(lengths):
            pages = (x[table[b].long()].transpose(0, 1).flatten(1, 2)[None] for x in (k, v))
            keys, values = (x[:, :, :length] for x in pages)
            assert difference(o[b : b + 1], dense(q[b : b + 1], keys, values)) < 1.5e-2, (lengths, b)
    many = torch.zeros(41, 2, 64, 64, device="cuda", dtype=q.dtype)
    with pytest.raises(attn.BindingError, match="41 pages, but the plan is for at most 40"):
        f(q, many, many, page_table=table, lengths_kv=torch.ones(3, device="cuda", dtype=torch.int32))


def caches(pages, heads, page, depth):
    """k and v [pages, heads, page, depth] as views of one allocation full of NaN, as engines have them."""
    def cache(*shape):
        return torch.full(shape, math.nan, device="cuda", dtype=torch.bfloat16)

    yield cache(pages, heads, page, depth), cache(pages, heads, page, depth)
    for k, v in (cache(2, pages, page, heads, depth), cache(pages, 2, page, heads, depth).unbind(1),
                 cache(pages, 3, 2, page, heads, depth)[:, 1].unbind(1)):
        yield k.transpose(1, 2), v.transpose(1, 2)
    yield cache(pages, 2, heads, page, depth).unbind(1)
    yield cache(pages, page, heads, 2 * depth).transpose(1, 2).split(depth, -1)
    yield cache(pages, heads, page, 2 * depth).split(depth, -1)
    yield cache(pages, heads, page + 1, 2 * depth)[:, :, :page].split(depth, -1)


@pytest.mark.parametrize("page", [1, 16, 64])
def test_caches_of_any_strides(page):
    """The same bits from views of one allocation, whose other elements are NaN, without a copy."""
    f = attn.compile(
        "attention cached { dims B = 3, Hq = 8, Hkv = 2, Sq = 1, Skv = 300, D = 64; align bottom_right;"
        f" layout paged(page = {page}, strides = bound); lengths kv; mask q_idx >= kv_idx; }}"
    )
    lengths, columns = (300, 77, 129), -(-300 // page)
    used = [-(-length // page) for length in lengths]
    pages = 2 * sum(used)
    numbers = torch.randperm(pages, device="cuda")[: sum(used)].int()
    table = torch.zeros(3, columns + 5, device="cuda", dtype=torch.int32)
    for b, part in enumerate(numbers.split(used)):
        table[b, : len(part)] = part
    located = {"page_table": table[:, :columns],
               "lengths_kv": torch.tensor(lengths, device="cuda", dtype=torch.int32)}
    q, *values = (make(shape, seed=seed).detach() for seed, shape in enumerate(
        ((3, 8, 1, 64), (pages, 2, page, 64), (pages, 2, page, 64))))
    expected = None
    for k, v in caches(pages, 2, page, 64):
        for pool, value in zip((k, v), values):
            pool[numbers.long()] = value[numbers.long()]
        before = torch.cuda.memory_allocated()
        for _ in range(3):  # the way of the first call, and the short ones
            o = f(q, k, v, **located)
            expected = o if expected is None else expected
            assert torch.equal(o, expected), k.stride()
        assert torch.cuda.memory_allocated() - before < k.nbytes
    for b, length in enumerate(lengths):
        pools = (x[table[b, :columns].long()].transpose(0, 1).flatten(1, 2)[None, :, :length] for x in values)
        assert difference(expected[b : b + 1], dense(q[b : b + 1], *pools)) < 1.5e-2, b
    with pytest.raises(attn.BindingError, match="adjacent elements in each row"):
        f(q, torch.zeros(pages, 2, page, 65, device="cuda", dtype=q.dtype)[..., :64], v, **located)


def test_packed_rows_of_any_strides():
    """q, k and v are parts of larger rows."""
    f = attn.compile(
        "attention rows { dims B = 3, Hq = 4, Hkv = 2, Sq = 200, D = 64; layout thd(strides = bound);"
        " mask q_idx >= kv_idx; }"
    )
    ends = torch.tensor([0, 200, 201, 330], device="cuda", dtype=torch.int32)
    located = {"cu_seqlens_q": ends, "cu_seqlens_kv": ends}
    q, k, v = make((330, 8, 64), seed=3).detach().split((4, 2, 2), 1)
    expected = f(*(x.contiguous() for x in (q, k, v)), **located)
    for _ in range(3):
        assert torch.equal(f(q, k, v, **located), expected)


def test_warm_builds_what_the_call_needs():
    f = attn.compile("attention warmed { dims B, Hq, Sq, D; mask q_idx >= kv_idx; }")
    f.warm(B=1, Hq=4, Sq=333, D=64, training=True, background=True).result(120)
    f.warm(B=1, Hq=4, Sq=333, D=64)
    f.builds = False
    q, k, v = inputs(1, 4, 4, 333, 333, 64)
    f(q, k, v).float().sum().backward()
    with torch.no_grad():
        f(q, k, v)
    with pytest.raises(attn.UnsupportedError):
        f(*inputs(1, 4, 4, 334, 334, 64))


def test_calls_that_may_not_build():
    f = attn.compile("attention unbuilt { dims B, Hq, Sq, D; mask q_idx >= kv_idx; }", builds=False)
    q, k, v = (x.detach() for x in inputs(1, 4, 4, 200, 200, 64))
    with pytest.raises(attn.UnsupportedError, match="`unbuilt` has no plan for a forward with these sizes"):
        f(q, k, v)
    f.warm(B=1, Hq=4, Sq=200, D=64)
    assert difference(f(q, k, v), dense(q, k, v, mask_mod=causal)) < 1.5e-2


def test_lengths_that_change_share_plans():
    """Forward and gradients of a learned bias, with documents, at lengths in and between two buckets."""
    f = attn.compile(
        "attention bucket { dims B, Hq, Hkv, Sq, Skv, D; tensor doc: i32[B, Skv] monotone;"
        " learn bias: f32[Hq, Skv]; score score + bias[h, kv_idx];"
        " mask q_idx >= kv_idx && doc[b, q_idx] == doc[b, kv_idx]; }",
        builds=False,
    ).bucketed(256, 512)
    f.warm(B=2, Hq=4, Hkv=2, D=64, training=True)
    for length in (1, 129, 256, 400, 512):
        q, k, v = inputs(2, 4, 2, length, length, 64)
        bias = torch.randn(4, length, device="cuda", requires_grad=True)
        doc = torch.randint(0, 3, (2, length), device="cuda").sort(1).values.int()
        o = f(q, k, v, doc=doc, bias=bias)
        exact = dense(
            q, k, v, lambda s, b, h, i, j: s + bias[h, j], lambda b, h, i, j: (i >= j) & (doc[b, i] == doc[b, j])
        )
        d_o = make(o.shape, seed=length).detach()
        leaves = (q, k, v, bias)
        found = [o, *torch.autograd.grad(o, leaves, d_o)]
        truth = [exact, *torch.autograd.grad(exact, leaves, d_o.double())]
        for name, x, y in zip(("o", "dq", "dk", "dv", "dbias"), found, truth):
            assert (x.double() - y).norm() < 1.5e-2 * y.norm() + 1e-3, (name, length)


def test_deterministic_mode_replaces_a_plan_that_is_not(tmp_path):
    sizes = {"B": 1, "Hq": 8, "Sq": 512, "D": 64}
    f = attn.compile(
        "attention plain { dims B, Hq, Sq, D; layout bhsd; mask q_idx >= kv_idx; }", direction="both", **sizes
    )
    assert not any("deterministic" in info.spec for info in f.plans)
    q, k, v = inputs(1, 8, 8, 512, 512, 64)
    f(q, k, v).float().sum().backward()  # by its own plan
    torch.use_deterministic_algorithms(True)
    try:
        found = [torch.autograd.grad(f(q, k, v).float().square().sum(), (q, k, v)) for _ in range(5)]
        f.save(tmp_path / "x.attnplan")
        with pytest.raises(attn.UnsupportedError, match="deterministic"):
            attn.load(tmp_path / "x.attnplan")(q, k, v).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(x, y) for other in found[1:] for x, y in zip(found[0], other))


def test_a_plan_of_the_other_hopper_gpu(tmp_path):
    """H100 and H200 have the same compute capability: plans of attnc's kernels for one run on the other."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("not a Hopper GPU")
    other = "h100" if "H200" in torch.cuda.get_device_name() else "h200"
    sizes = {"B": 2, "Hq": 8, "Hkv": 2, "Sq": 777, "Skv": 1001, "D": 128}
    spec = (
        "attention other { dims B, Hq, Hkv, Sq, Skv, D; layout bhsd; align bottom_right;"
        " mask q_idx >= kv_idx; }"
    )
    path = tmp_path / "other.attnplan"
    attn.compile(spec, target=other, engine="native", direction="both", **sizes).save(path)
    f = attn.load(path)
    assert {info.target for info in f.plans} == {other}
    q, k, v = inputs(2, 8, 2, 777, 1001, 128)
    o = f(q, k, v)
    exact = dense(q, k, v, mask_mod=lambda b, h, q_idx, kv_idx: q_idx + 224 >= kv_idx)
    d_o = make(o.shape, seed=4).detach()
    found = [o, *torch.autograd.grad(o, (q, k, v), d_o)]
    truth = [exact, *torch.autograd.grad(exact, (q, k, v), d_o.double())]
    print(f"\nOTHER a plan for {other} on {torch.cuda.get_device_name()}:",
          *(f"{n} {difference(x, y):.1e}" for n, x, y in zip(("o", "dq", "dk", "dv"), found, truth)))
    assert all(difference(x, y) < 1.5e-2 for x, y in zip(found, truth))
    attn.compile(spec, target="a100", **sizes).save(path)
    with pytest.raises(attn.PlanDeviceError, match=r"is for a100 \(sm_80\), and this GPU is sm_90"):
        attn.load(path)(*(x.detach() for x in (q, k, v)))


class Dropping(torch.nn.Module):
    """A layer with dropout and a learned bias for each head, query and key."""

    def __init__(self, attend, width=256, heads=4, length=128):
        super().__init__()
        self.qkv = torch.nn.Linear(width, 3 * width, device="cuda", dtype=torch.bfloat16)
        self.out = torch.nn.Linear(width, width, device="cuda", dtype=torch.bfloat16)
        self.bias = torch.nn.Parameter(torch.zeros(heads, length, length, device="cuda"))
        self.attend = attend

    def forward(self, x, seed):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.bias.shape[0], -1)).permute(2, 0, 3, 1, 4)
        return x + self.out(self.attend(q, k, v, self.bias, seed).transpose(1, 2).flatten(2))


def test_training_with_dropout_follows_a_dense_implementation():
    """200 steps with a learned bias. The dense one drops the same weights: those that an attention whose
    scores are all equal gives to values that are unit vectors."""
    length, dropped = 128, 0.1
    declared = "dims B, Hq, Sq, Dqk, Dv;"
    clauses = f"dropout {dropped}; mask q_idx >= kv_idx;"
    learned = "learn bias: f32[Hq, Sq, Skv]; score score + bias[h, q_idx, kv_idx];"
    compiled = attn.compile(f"attention dropping {{ {declared} {learned} {clauses} }}")
    weights = attn.compile(f"attention weights {{ {declared} {clauses} }}")
    offset = torch.zeros(1, dtype=torch.int64, device="cuda")

    def ours(q, k, v, bias, seed):
        return compiled(q, k, v, bias=bias, seed=seed, offset=offset)

    def theirs(q, k, v, bias, seed):
        with torch.no_grad():
            units = torch.eye(length, device="cuda", dtype=q.dtype).expand(*q.shape[:2], -1, -1).contiguous()
            zeros = torch.zeros_like(q).contiguous()
            kept = weights(zeros, zeros, units, seed=seed, offset=offset) > 0
        scores = q.float() @ k.float().mT / math.sqrt(q.shape[-1]) + bias
        seen = torch.ones(length, length, dtype=torch.bool, device="cuda").tril()
        p = torch.where(seen, scores, -math.inf).softmax(-1)
        return (torch.where(kept, p / (1 - dropped), 0) @ v.float()).to(q.dtype)

    def train(attend):
        torch.manual_seed(0)
        layers = torch.nn.ModuleList(Dropping(attend) for _ in range(2))
        optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3)
        data = torch.randn(8, 2, length, 256, device="cuda", dtype=torch.bfloat16)
        losses = []
        for step in range(200):
            x = data[step % 8]
            for place, layer in enumerate(layers):
                x = layer(x, torch.tensor([2 * step + place], device="cuda"))
            loss = (x - torch.roll(data[step % 8], 1, 1)).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, layers[0].bias.detach()

    (mine, bias), (others, their_bias) = train(ours), train(theirs)
    print("\nLOSS dropout", *(f"{s}: {mine[s]:.4f} {others[s]:.4f};" for s in (0, 20, 50, 100, 150, 199)),
          f"bias moved {bias.norm():.2f} {their_bias.norm():.2f}")
    assert mine[-1] < 0.9 * mine[0] and bias.norm() > 0.1
    assert max(abs(x - y) / y for x, y in zip(mine, others)) < 0.03


def test_training_follows_flex_attention():
    """200 steps of a small model with a learned bias: the loss curve is FlexAttention's."""

    def train(attend):
        torch.manual_seed(0)
        model = two_layers()
        for block in model:
            block.attend = attend
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        data = torch.randn(8, 2, 128, 256, device="cuda", dtype=torch.bfloat16)
        target = torch.roll(data, 1, 2)
        losses = []
        for step in range(200):
            loss = (model(data[step % 8]) - target[step % 8]).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    compiled = two_layers()[0].attend

    def flex(q, k, v, slopes):
        def score_mod(score, b, h, q_idx, kv_idx):
            return score + slopes[h] * (q_idx - kv_idx)

        mask = create_block_mask(causal, None, None, q.shape[2], k.shape[2])
        return flex_attention(q, k, v, score_mod, mask)

    ours, theirs = train(compiled), train(flex)
    shown = (0, 20, 50, 100, 150, 199)
    print("\nLOSS step ours flex", *(f"{s}: {ours[s]:.4f} {theirs[s]:.4f};" for s in shown))
    assert ours[-1] < 0.9 * ours[0]
    assert max(abs(x - y) / y for x, y in zip(ours, theirs)) < 0.03


def eight_bits_or_skip():
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("cuDNN computes 8-bit attention on compute capability 9.0 and from 10.0 on")


def scale_of(x, dtype=torch.float8_e4m3fn):
    return (x.detach().abs().max().float() / torch.finfo(dtype).max).reshape(1)


def causal_in_float64(q, k, v):
    return dense(q, k, v, mask_mod=causal)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_8_bit_floats(layout):
    eight_bits_or_skip()
    with torch.no_grad():
        q, k, v = inputs(2, 8, 8, 512, 512, 128, layout)
        f = attn.compile("fp8_causal")
        scales = {f"descale_{name}": scale_of(x) for name, x in zip("qkv", (q, k, v))}
        eight = [attn.torch.quantize(x, scales[f"descale_{name}"], torch.float8_e4m3fn)
                 for name, x in zip("qkv", (q, k, v))]
        want = causal_in_float64(q, k, v)
        for _ in range(2):  # the second call goes the short way
            o, lse, amax_s, amax_o = f(*eight, **scales)
            assert o.dtype == torch.float8_e4m3fn and amax_s.item() == pytest.approx(1, abs=1e-3)
            assert difference(o.float() / 64, want) < 0.08
            assert amax_o.item() == pytest.approx(want.abs().max().item(), rel=0.1)
        assert difference(f(q, k, v, **scales)[0], want) < 0.08  # rounded inside
        o, *_ = torch.compile(lambda *x: f(*x, **scales), fullgraph=True)(*eight)
        assert difference(o.float() / 64, want) < 0.08


@pytest.mark.parametrize("compiled", [False, True])
def test_training_in_8_bit_floats(compiled):
    eight_bits_or_skip()
    if torch.cuda.get_device_capability() >= (12, 0):
        pytest.skip("cuDNN has no such backward")
    q, k, v = inputs(2, 8, 2, 512, 512, 128)
    do = make((2, 8, 512, 128), seed=4).detach()
    scales = {f"descale_{name}": scale_of(x) for name, x in zip("qkv", (q, k, v))}
    scales["descale_do"] = scale_of(do, torch.float8_e5m2)
    f = attn.compile("fp8_training")

    def step(q, k, v, amax):
        return f(q, k, v, **scales, **amax)[0]

    want = causal_in_float64(q, k, v)
    gradients = torch.autograd.grad(want, (q, k, v), do.double())
    run = torch.compile(step, fullgraph=True) if compiled else step
    for _ in range(2):
        amax = {name: torch.zeros(1, device="cuda") for name in ("amax_dp", "amax_dq", "amax_dk", "amax_dv")}
        o = run(q, k, v, amax)
        assert o.dtype == torch.bfloat16 and difference(o, want) < 0.08
        for found, wanted, name in zip(torch.autograd.grad(o, (q, k, v), do), gradients, ("dq", "dk", "dv")):
            assert found.dtype == torch.bfloat16 and difference(found, wanted) < 0.15
            assert amax[f"amax_{name}"].item() == pytest.approx(wanted.abs().max().item(), rel=0.2)
        assert amax["amax_dp"].item() > 0
