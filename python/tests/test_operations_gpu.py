"""attn.torch.append and merge against PyTorch, bit by bit where results are rounded once. On a GPU; without one, on
the stand-in for the driver (the test python.runtime), which runs their kernels on tensors of the CPU."""

import itertools
import os
import random

import pytest

torch = pytest.importorskip("torch")
ON_GPU = torch.cuda.is_available()
if not ON_GPU and "ATTN_STANDIN_PLAN" not in os.environ:
    pytest.skip("no CUDA GPU, and no stand-in", allow_module_level=True)

import attn.torch  # noqa: E402
from attn.torch import pages as module  # noqa: E402

DEVICE = "cuda" if ON_GPU else "cpu"
WIDE = (torch.bfloat16, torch.float16, torch.float32)
EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
PAGES, PAGE_SIZE, POSITIONS = 21, 16, 50

# Views of memory [pages, page_size, heads, width], as engines hold caches.
LAYOUTS = {
    "NHD": lambda p, n, h, d, t: torch.zeros(p, n, h, d, dtype=t, device=DEVICE),
    "HND": lambda p, n, h, d, t: torch.zeros(p, h, n, d, dtype=t, device=DEVICE).transpose(1, 2),
    "[2, P, N, H, D]": lambda p, n, h, d, t: torch.zeros(2, p, n, h, d, dtype=t, device=DEVICE)[1],
    "[P, 2, N, H, D]": lambda p, n, h, d, t: torch.zeros(p, 2, n, h, d, dtype=t, device=DEVICE)[:, 1],
    "[P, 2, H, N, D]": lambda p, n, h, d, t: torch.zeros(p, 2, h, n, d, dtype=t, device=DEVICE)[:, 1].transpose(1, 2),
    "[P, N, H, 2D]": lambda p, n, h, d, t: torch.zeros(p, n, h, 2 * d, dtype=t, device=DEVICE)[..., d:],
    "[P, H, N, 2D]": lambda p, n, h, d, t: torch.zeros(p, h, n, 2 * d, dtype=t, device=DEVICE)[..., d:].transpose(1, 2),
    "[P, L, N, H, D]": lambda p, n, h, d, t: torch.zeros(p, 3, n, h, d, dtype=t, device=DEVICE)[:, 1],
    "odd": lambda p, n, h, d, t: torch.zeros(p, n, h, d + 1, dtype=t, device=DEVICE)[..., 1:],
}


@pytest.fixture(autouse=True)
def on_the_stand_in(monkeypatch):
    torch.manual_seed(1)
    if not ON_GPU:
        monkeypatch.setattr(module, "_device_of", lambda tensors: 0)
        monkeypatch.setattr(module, "_stream_of", lambda device: 0)


def rows_of(rows, heads, width, dtype, fused=False):
    """New rows; if `fused`, parts of one projection."""
    made = torch.randn(rows, heads * (3 if fused else 1), width, device=DEVICE).to(dtype)
    return made[:, heads:2 * heads] if fused else made


def slots_of(rows):
    """Different ones, and some that skip."""
    slots = torch.randperm(PAGES * PAGE_SIZE)[:rows]
    slots[torch.rand(rows) < 0.2] = -1
    return slots.to(DEVICE)


def rotated(x, cos, sin, positions, interleaved):
    half = cos.shape[1]
    c, s = (table[positions.long()].float()[:, None] for table in (cos, sin))
    turned, rest = x[..., :2 * half].float(), x[..., 2 * half:].float()
    x1, x2 = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.split(half, dim=-1)
    y1, y2 = x1 * c - x2 * s, x2 * c + x1 * s
    turned = torch.stack((y1, y2), -1).flatten(-2) if interleaved else torch.cat((y1, y2), -1)
    return torch.cat((turned, rest), -1)


def rounded(x, dtype, descale=None):
    if dtype in EIGHT_BITS:
        return attn.torch.quantize(x, 1 if descale is None else descale, dtype)
    return x.to(dtype)


def appended(cache, x, slots, descale=None):
    """The cache, and the rows where the slots say, in f32."""
    expected, kept = cache.float(), slots >= 0
    at = slots[kept]
    expected[at // PAGE_SIZE, at % PAGE_SIZE] = rounded(x.float()[kept], cache.dtype, descale).float()
    return expected


def same(x, y):
    return torch.equal(x.float(), y.float()) and not x.float().isnan().any()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [1, 7, 129])
def test_rows_go_to_their_slots(layout, rows):
    for width, heads, dtype in itertools.product((64, 72, 128, 576), (1, 5), WIDE[:2]):
        if not ON_GPU and rows > 7 and width > 72:
            continue  # takes the CPU long
        for _ in range(2):  # other tensors of the same shapes
            k, v = (rows_of(rows, heads, width, dtype, fused) for fused in (False, True))
            caches = [LAYOUTS[layout](PAGES, PAGE_SIZE, heads, width, dtype) for _ in range(2)]
            slots = slots_of(rows)
            expected = [appended(cache, x, slots) for cache, x in zip(caches, (k, v))]
            assert attn.torch.append(k, v, *caches, slots) is None
            for cache, right in zip(caches, expected):
                assert same(cache, right), (width, heads, dtype)


@pytest.mark.parametrize("seed", range(40))
def test_all_options(seed):
    """Random types, sizes, layouts, tables and scales, k alone, v alone and both, with and without q."""
    choose = random.Random(seed)
    rows, heads, width_k = choose.choice((1, 7, 29)), choose.choice((1, 5)), choose.choice((64, 66, 72, 128))
    width_v = choose.choice((width_k, 40))
    new, wide, stored = choose.choice(WIDE), choose.choice(WIDE), choose.choice(WIDE + EIGHT_BITS)
    has_k, has_v = choose.choice(((True, True), (True, False), (False, True)))
    layout = LAYOUTS[choose.choice(list(LAYOUTS))]
    k, v = rows_of(rows, heads, width_k, new, True), rows_of(rows, heads, width_v, wide) * 100
    k_cache, v_cache = (layout(PAGES, PAGE_SIZE, heads, width, stored) for width in (width_k, width_v))
    slots = slots_of(rows)
    descales = [torch.tensor([x], device=DEVICE) if stored in EIGHT_BITS and choose.random() < 0.7 else None
                for x in (0.25, 0.3)]
    interleaved, half = choose.random() < 0.5, choose.choice((width_k // 2, 16, 10, 3, 1))
    tables = torch.randn(POSITIONS, 2 * half, device=DEVICE).to(choose.choice(WIDE))
    cos, sin = tables.split(half, dim=1)
    positions = torch.randint(POSITIONS, (rows,), device=DEVICE, dtype=choose.choice((torch.int32, torch.int64)))
    q = rows_of(rows, 7, width_k, new)
    turns = has_k and choose.random() < 0.8
    options = dict(cos=cos, sin=sin, positions=positions, interleaved=interleaved, q=q) if turns else {}
    expected_k = appended(
        k_cache, rotated(k, cos, sin, positions, interleaved) if turns else k, slots, descales[0])
    expected_v = appended(v_cache, v, slots, descales[1])
    outside = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    q_out = attn.torch.append(
        k if has_k else None, v if has_v else None, k_cache if has_k else None, v_cache if has_v else None, slots,
        descale_k=descales[0] if has_k else None, descale_v=descales[1] if has_v else None, outside=outside, **options)
    assert not has_k or same(k_cache, expected_k)
    assert not has_v or same(v_cache, expected_v)
    assert outside.item() == 0
    if turns:
        expected_q = rotated(q, cos, sin, positions, interleaved).to(new)
        assert same(q_out, expected_q)
        attn.torch.append(None, None, None, None, None, **options | {"q_out": q})
        assert same(q, expected_q)


def test_what_does_not_exist_counts():
    k, cache = rows_of(5, 1, 64, torch.bfloat16), LAYOUTS["NHD"](PAGES, PAGE_SIZE, 1, 64, torch.bfloat16)
    slots = torch.tensor([3, PAGES * PAGE_SIZE, -7, 2**40, 5], device=DEVICE)
    positions = torch.tensor([0, 0, 0, 0, POSITIONS], device=DEVICE)
    cos = torch.randn(POSITIONS, 32, device=DEVICE)
    outside = torch.full((1,), 7, dtype=torch.int32, device=DEVICE)
    kept = torch.tensor([3, -1, -1, -1, -1], device=DEVICE)
    expected = appended(cache, rotated(k, cos, cos, positions.clamp(max=1), False), kept)
    attn.torch.append(k, None, cache, None, slots, cos=cos, sin=cos, positions=positions, outside=outside)
    assert same(cache, expected) and outside.item() == 10


def test_parts_of_one_pool():
    """Multi-head latent attention: the latent part, and 64 columns with positions."""
    pool = torch.zeros(PAGES, 16, 1, 576, device=DEVICE, dtype=torch.bfloat16)
    c_kv, k_pe = rows_of(29, 1, 512, torch.bfloat16), rows_of(29, 1, 64, torch.bfloat16)
    q = rows_of(29, 16, 576, torch.bfloat16)
    slots, positions = slots_of(29), torch.arange(29, device=DEVICE)
    cos, sin = torch.randn(2, POSITIONS, 32, device=DEVICE)
    whole = torch.cat((c_kv.float(), rotated(k_pe, cos, sin, positions, True)), -1)
    expected = appended(pool, whole, slots)
    expected_q = torch.cat((q[..., :512].float(), rotated(q[..., 512:], cos, sin, positions, True)), -1).bfloat16()
    attn.torch.append(k_pe, c_kv, pool[..., 512:], pool[..., :512], slots, cos=cos, sin=sin, positions=positions,
                      interleaved=True, q=q[..., 512:], q_out=q[..., 512:])
    assert same(pool, expected) and same(q, expected_q)


def test_no_rows():
    cache = LAYOUTS["NHD"](PAGES, PAGE_SIZE, 2, 64, torch.bfloat16)
    k = rows_of(0, 2, 64, torch.bfloat16)
    attn.torch.append(k, k, cache, cache, slots_of(0))
    o, lse = attn.torch.merge(k, k[..., 0].float(), k, k[..., 0].float())
    assert o.shape == (0, 2, 64) and lse.shape == (0, 2)


def merged(results):
    """What pairs of o [T, H, D] and lse [T, H] give, in double."""
    lse = torch.stack([each.double() for _, each in results])
    lse = lse.where(~lse.isinf(), -torch.inf)
    total = lse.logsumexp(0)
    weights = (lse - total.where(~total.isinf(), 0)).exp()
    o = sum(weight[..., None] * each.double().nan_to_num(0) for weight, (each, _) in zip(weights, results))
    return o, total


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("heads_first", [False, True])
def test_merge(dtype, heads_first):
    turn = (lambda x: x.transpose(-1, -2)) if heads_first else (lambda x: x)
    for rows, heads, width, count in itertools.product((1, 7, 129), (1, 5), (5, 64, 72, 576), (1, 3)):
        if not ON_GPU and rows * width > 7 * 72:
            continue
        o = torch.randn(count + 1, rows, heads, width, device=DEVICE).to(dtype)
        lse = 5 * torch.randn(count + 1, rows, heads, device=DEVICE)
        lse[torch.rand(lse.shape) < 0.3] = -torch.inf
        lse[0, ::5] = torch.inf
        lse[:, ::7] = -torch.inf
        o[lse.isinf()] = torch.nan
        right, sums = merged(list(zip(o, lse)))
        out, lse_out = attn.torch.merge(o[0], turn(lse[0]).contiguous(), o[1:], turn(lse[1:]), heads_first=heads_first)
        stacked = attn.torch.merge(o, turn(lse), heads_first=heads_first)
        assert same(out, stacked[0]) and torch.equal(lse_out, stacked[1])
        rounding = torch.finfo(dtype).eps
        torch.testing.assert_close(out.double(), right, rtol=rounding, atol=1e-5)
        torch.testing.assert_close(turn(lse_out).double(), sums, rtol=1e-6, atol=1e-6)
        if count == 1:  # in place
            first, second = turn(lse[0]).clone(), turn(lse[1]).clone()
            attn.torch.merge(o[0], first, o[1], second, heads_first=heads_first, out=o[1], lse_out=second)
            assert same(o[1], out) and torch.equal(second, lse_out)


def test_merge_rows_apart():
    """Outputs and inputs of other strides."""
    whole, outs = (torch.randn(7, 5, 3, 72, device=DEVICE).bfloat16() for _ in range(2))
    lse = torch.randn(7, 5, 3, device=DEVICE)
    right, _ = merged([(whole[:, 0], lse[:, 0]), (whole[:, 3], lse[:, 3])])
    out, _ = attn.torch.merge(whole[:, 0], lse[:, 0], whole[:, 3], lse[:, 3], out=outs[:, 1])
    torch.testing.assert_close(out.double(), right, rtol=2**-8, atol=1e-5)


@pytest.mark.skipif(not ON_GPU, reason="no CUDA GPU")
def test_both_are_captured_and_replayed():
    """In one graph, whose tensors change; the first call of a process may be a captured one."""
    rows, heads = 29, 5
    k, v, q = (rows_of(rows, heads, 128, torch.bfloat16) for _ in range(3))
    caches = [LAYOUTS["HND"](PAGES, PAGE_SIZE, heads, 128, torch.float8_e4m3fn) for _ in range(2)]
    slots, positions = slots_of(rows), torch.arange(rows, device=DEVICE)
    cos, sin = torch.randn(2, POSITIONS, 64, device=DEVICE)
    descale = torch.tensor([0.1], device=DEVICE)
    o, lse = torch.randn(2, rows, heads, 64, device=DEVICE), torch.randn(2, rows, heads, device=DEVICE)
    q_out = torch.empty_like(q)
    out, lse_out = torch.empty_like(o[0]), torch.empty_like(lse[0])

    def step():
        attn.torch.append(k, v, *caches, slots, cos=cos, sin=sin, positions=positions, q=q, q_out=q_out,
                          descale_k=descale, descale_v=descale)
        attn.torch.merge(o[0], lse[0], o[1], lse[1], out=out, lse_out=lse_out)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(3):
        for x in (k, v, q, o, lse):
            x.normal_()
        slots.copy_(slots_of(rows))
        positions.copy_(torch.randint(POSITIONS, (rows,)))
        expected = [appended(caches[0], rotated(k, cos, sin, positions, False), slots, descale),
                    appended(caches[1], v, slots, descale)]
        graph.replay()
        torch.cuda.synchronize()
        assert all(same(cache, right) for cache, right in zip(caches, expected))
        assert same(q_out, rotated(q, cos, sin, positions, False).bfloat16())
        torch.testing.assert_close(out.double(), merged(list(zip(o, lse)))[0], rtol=1e-5, atol=1e-5)
