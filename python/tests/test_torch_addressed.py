"""Packed sequences and pages through attn.torch on the CPU, beside dense attention of each sequence."""

import math
import types

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attn.torch.launch import check, view_of  # noqa: E402

PACKED = """attention packed {
  dims B = 4, Hq = 4, Hkv = 2, Sq = 9, Skv = 12, D = 8;
  layout thd;
  align bottom_right;
  mask q_idx >= kv_idx;
  outputs o, lse;
}
"""
PAGED = """attention paged {
  dims B = 3, Hq = 4, Hkv = 2, Sq = 2, Skv = 11, D = 8;
  layout paged(page = 4, pages = 20);
  align bottom_right;
  lengths kv;
  mask q_idx >= kv_idx;
  outputs o, lse;
}
"""
LENGTHS = ((3, 3), (0, 2), (9, 12), (1, 7))


def dense(q, k, v):
    """Attention of one sequence, [S, H, D]: causal, the last row sees all keys."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.transpose(0, 1), *(x.transpose(0, 1).repeat_interleave(group, 0) for x in (k, v))
    rows, columns = q.shape[1], k.shape[1]
    seen = torch.arange(rows)[:, None] + columns - rows >= torch.arange(columns)
    scores = torch.where(seen, q @ k.mT / math.sqrt(q.shape[-1]), -math.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1), scores.logsumexp(-1).transpose(0, 1)


def random(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def cumulative(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).int()


def packed_inputs():
    rows, keys = (cumulative(each) for each in zip(*LENGTHS))
    q, k, v = random(rows[-1], 4, 8), random(keys[-1], 2, 8), random(keys[-1], 2, 8)
    return q, k, v, {"cu_seqlens_q": rows, "cu_seqlens_kv": keys}


def test_packed_sequences():
    torch.manual_seed(0)
    f = attn.compile(PACKED)
    q, k, v, lengths = packed_inputs()
    o, lse = f(q, k, v, **lengths)
    rows, keys = lengths.values()
    each = [
        dense(q[rows[i] : rows[i + 1]], k[keys[i] : keys[i + 1]], v[keys[i] : keys[i + 1]]) for i in range(4)
    ]
    expected, expected_lse = (torch.cat(parts) for parts in zip(*each))
    torch.testing.assert_close(o, expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(lse, expected_lse, atol=1e-12, rtol=1e-12)
    weights = torch.randn_like(o)
    found = torch.autograd.grad(o, (q, k, v), weights)
    wanted = torch.autograd.grad(expected, (q, k, v), weights)
    for x, y in zip(found, wanted):
        torch.testing.assert_close(x, y, atol=1e-12, rtol=1e-12)


def test_pages():
    torch.manual_seed(0)
    f = attn.compile(PAGED)
    q, k, v = random(3, 4, 2, 8), random(20, 2, 4, 8), random(20, 2, 4, 8)
    table = torch.randperm(20)[:9].reshape(3, 3).int()
    lengths = torch.tensor([11, 2, 6], dtype=torch.int32)
    o, lse = f(q, k, v, page_table=table, lengths_kv=lengths)
    each = []
    for b in range(3):
        keys, values = (x[table[b].long()].transpose(1, 2).flatten(0, 1)[: lengths[b]] for x in (k, v))
        each.append(dense(q[b].transpose(0, 1), keys, values))
    expected, expected_lse = (torch.stack([x.transpose(0, 1) for x in parts]) for parts in zip(*each))
    torch.testing.assert_close(o, expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(lse, expected_lse, atol=1e-12, rtol=1e-12)
    found = torch.autograd.grad(o.square().sum(), (q, k, v))
    wanted = torch.autograd.grad(expected.square().sum(), (q, k, v))
    for x, y in zip(found, wanted):
        torch.testing.assert_close(x, y, atol=1e-12, rtol=1e-12)


def views(pages, heads, page, depth, **made):
    """k and v [pages, heads, page, depth] as engines have them, by the name of the cache's layout: views of one
    allocation that `torch.zeros` makes."""
    def cache(*shape):
        return torch.zeros(shape, **made)

    k, v = cache(2, pages, page, heads, depth)
    yield "[2,P,N,H,D]", k.transpose(1, 2), v.transpose(1, 2)
    k, v = cache(pages, 2, page, heads, depth).unbind(1)
    yield "[P,2,N,H,D]", k.transpose(1, 2), v.transpose(1, 2)
    yield "[P,2,H,N,D]", *cache(pages, 2, heads, page, depth).unbind(1)
    k, v = cache(pages, page, heads, 2 * depth).transpose(1, 2).split(depth, -1)
    yield "[P,N,H,2D]", k, v
    yield "[P,H,N,2D]", *cache(pages, heads, page, 2 * depth).split(depth, -1)
    k, v = cache(pages, 3, 2, page, heads, depth)[:, 1].unbind(1)
    yield "[P,L,2,N,H,D]", k.transpose(1, 2), v.transpose(1, 2)


def test_caches_of_any_strides():
    f = attn.compile(PAGED.replace("pages = 20", "strides = bound"))
    assert f.described.bound == {"k", "v", "page_table"}
    q, k, v = (x.detach() for x in (random(3, 4, 2, 8), random(20, 2, 4, 8), random(20, 2, 4, 8)))
    located = {
        "page_table": torch.randperm(20).expand(3, -1)[:, :3].int(),
        "lengths_kv": torch.tensor([11, 2, 6], dtype=torch.int32),
    }
    expected = f(q, k, v, **located)
    for name, own_k, own_v in views(20, 2, 4, 8, dtype=torch.float64):
        own_k.copy_(k), own_v.copy_(v)
        for found, wanted in zip(f(q, own_k, own_v, **located), expected):
            assert torch.equal(found, wanted), name


def test_packed_rows_over_a_cache():
    """Rows of several sequences, each with its own page table."""
    text = PAGED.replace("layout paged(page = 4, pages = 20)",
                         "layout q: thd(strides = bound), o: thd, k: paged(page = 4, strides = bound),"
                         " v: paged(page = 4, strides = bound)").replace("B = 3", "B = 4")
    f = attn.compile(text)
    assert f.described.packed == ("q",) and f.described.bound == {"q", "k", "v", "page_table"}
    k, v = (x.detach() for x in (random(20, 2, 4, 8), random(20, 2, 4, 8)))
    rows = random(5, 6, 8).detach()[:, :4]
    ends = cumulative((2, 0, 1, 2))
    table = torch.randperm(20)[:12].reshape(4, 3).int()
    lengths = torch.tensor([11, 2, 6, 2], dtype=torch.int32)
    o, lse = f(rows, k, v, cu_seqlens_q=ends, page_table=table, lengths_kv=lengths)
    parts = []
    for b in range(4):
        keys, values = (x[table[b].long()].transpose(1, 2).flatten(0, 1)[: lengths[b]] for x in (k, v))
        parts.append(dense(rows[ends[b] : ends[b + 1]], keys, values))
    for found, wanted in zip((o, lse), map(torch.cat, zip(*parts))):
        torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-12)


def info_of(name, dims, strides, addressed_by, bound=True):
    return types.SimpleNamespace(name=name, dtype="bf16", dims=dims, strides=strides, addressed_by=addressed_by,
                                 bound_strides=bound)


def test_views_that_kernels_read_in_place():
    device = torch.device("cpu")
    info = info_of("k", (3, 2, 4, 8), (64, 32, 8, 1), "page_table")
    for _, k, v in views(50, 2, 4, 8, dtype=torch.bfloat16):
        for pool in (k, v):
            check(info, pool, device)
            assert view_of(info, pool) == (tuple(pool.shape), pool.stride())
    pool = torch.zeros(50, 2, 4, 8, dtype=torch.bfloat16)
    with pytest.raises(attn.BindingError, match="k must be contiguous"):
        check(info_of("k", (50, 2, 4, 8), (64, 32, 8, 1), "page_table", False), pool.mT.contiguous().mT, device)
    wide = torch.zeros(50, 2, 4, 12, dtype=torch.bfloat16)
    for other in (pool.mT.contiguous().mT, wide[..., :8], pool[:1].expand(50, -1, -1, -1),
                  torch.zeros(50 * 64 + 1, dtype=torch.bfloat16)[1:].view(50, 2, 4, 8)):
        with pytest.raises(attn.BindingError, match="k has strides .* kernels read it in place"):
            check(info, other, device)
    # Strides of one page, or head, mean nothing.
    one = pool.flatten().as_strided((1, 1, 4, 8), (3, 5, 8, 1))
    check(info_of("k", (3, 1, 4, 8), (32, 32, 8, 1), "page_table"), one, device)


def test_page_tables_and_packed_rows_in_place():
    device = torch.device("cpu")
    table = info_of("page_table", (3, 5), (5, 1), "")
    table.dtype = "i32"
    whole = torch.zeros(3, 9, dtype=torch.int32)
    check(table, whole[:, :5], device)
    assert view_of(table, whole[:, :5]) == ((3, 5), (9, 1))
    with pytest.raises(attn.BindingError, match="rows must not overlap"):
        check(table, whole[:1, :5].expand(3, -1), device)
    rows = info_of("q", (3, 2, 7, 8), (112, 8, 16, 1), "cu_seqlens_q")
    qkv = torch.zeros(11, 4, 8, dtype=torch.bfloat16)
    check(rows, qkv[:, :2], device)
    assert view_of(rows, qkv[:, :2]) == ((3, 2, 7, 8), (112, 8, 32, 1))


def test_what_is_past_the_lengths_may_be_anything():
    f = attn.compile(PAGED)
    q, k, v = random(3, 4, 2, 8), random(20, 2, 4, 8), random(20, 2, 4, 8)
    table, lengths = (torch.tensor(x, dtype=torch.int32) for x in ([[7, 3, 9], [1, 0, 0], [5, 2, 0]], [11, 2, 6]))
    expected = f(q, k, v, page_table=table, lengths_kv=lengths)
    wanted = torch.autograd.grad(expected[0].square().sum(), (q, k, v))
    table[1, 1], table[1, 2], table[2, 2] = -1, 20, 2**31 - 1
    with torch.no_grad():
        for pool, unused in ((k, math.nan), (v, math.inf)):
            pool[0], pool[9, :, 3], pool[1, :, 2:], pool[2, :, 2:] = unused, unused, unused, unused
    found = f(q, k, v, page_table=table, lengths_kv=lengths)
    for x, y in zip(found, expected):
        assert torch.equal(x, y)
    for x, y in zip(torch.autograd.grad(found[0].square().sum(), (q, k, v)), wanted):
        assert torch.equal(x, y)


def test_in_traced_programs():
    f = attn.compile(PACKED)
    q, k, v, lengths = packed_inputs()
    compiled = torch.compile(lambda q, k, v: f(q, k, v, **lengths), fullgraph=True, backend="aot_eager")
    for mine, expected in zip(compiled(q, k, v), f(q, k, v, **lengths)):
        torch.testing.assert_close(mine, expected)
    found = torch.autograd.grad(compiled(q, k, v)[0].square().sum(), (q, k, v))
    wanted = torch.autograd.grad(f(q, k, v, **lengths)[0].square().sum(), (q, k, v))
    for x, y in zip(found, wanted):
        torch.testing.assert_close(x, y)


def test_page_tables_of_their_own():
    layout = "layout k: paged(page = 4, pages = 9), v: paged(page = 2, pages = 9)"
    f = attn.compile(PAGED.replace("layout paged(page = 4, pages = 20)", layout))
    assert f._torch_facts.addressing.tables == {"k": "page_table_k", "v": "page_table_v"}
    one = attn.compile(PAGED)._torch_facts.addressing
    assert one.inputs == ("page_table",) and not one.packed


def test_what_is_missing_or_of_another_shape():
    f = attn.compile(PACKED)
    q, k, v, lengths = packed_inputs()
    with pytest.raises(attn.BindingError, match="cu_seqlens_q and cu_seqlens_kv must be given"):
        f(q, k, v)
    with pytest.raises(attn.BindingError, match=r"q has shape \[1, .*; it must be \[T, H, D\]"):
        f(q[None], k, v, **lengths)
    with pytest.raises(attn.BindingError, match="has no input `lengths_q`"):
        f(q, k, v, **lengths, lengths_q=torch.zeros(4))
    with pytest.raises(attn.BindingError, match=r"k has shape .* it must be \[pages, Hkv, page, D\]"):
        table = {"page_table": torch.zeros(3, 3), "lengths_kv": torch.zeros(3)}
        attn.compile(PAGED)(random(3, 4, 2, 8), k, v, **table)


@pytest.mark.parametrize("traces", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_rows_past_the_last_sequence(dtype, traces):
    """T is larger than the last offset, as in programs whose shapes are fixed: zeros, in q's shape."""
    f = attn.compile(PACKED)
    q, k, v, lengths = packed_inputs()
    q, k, v = (x.detach().to(dtype) for x in (q, k, v))
    long = [torch.cat([x, torch.full((count, *x.shape[1:]), math.nan, dtype=dtype)]).requires_grad_()
            for x, count in ((q, 3), (k, 2), (v, 2))]
    run = torch.compile(lambda *x: f(*x, **lengths), fullgraph=True, backend="aot_eager") if traces else f
    o, lse = run(*long) if traces else f(*long, **lengths)
    short = [x.requires_grad_() for x in (q, k, v)]
    expected, expected_lse = f(*short, **lengths)
    assert o.shape == long[0].shape and (o[13:] == 0).all() and (lse[13:] == -math.inf).all()
    torch.testing.assert_close(o[:13], expected)
    torch.testing.assert_close(lse[:13], expected_lse)
    weights = torch.randn(o.shape).to(dtype)
    found = torch.autograd.grad(o, long, weights)
    for x, y in zip(found, torch.autograd.grad(expected, short, weights[:13])):
        torch.testing.assert_close(x[: len(y)], y)
        assert len(x) > len(y) and (x[len(y) :] == 0).all()


@pytest.mark.parametrize("offsets, words", [
    ([0, 3, 2, 12, 13], r"cu_seqlens_q falls from 3 to 2, at \[2\]"),
    ([0, 3, 3, 12, 14], "cu_seqlens_q ends at 14, but q has 13 rows"),
    ([1, 3, 3, 12, 13], r"the first is 0: it is \[1, 3, 3, 12\]"),
    ([[0, 3, 3, 12, 13]], r"must be \[B \+ 1\] offsets, of which the first is 0: it is of shape \[1, 5\]"),
    ([], "must be .B . 1. offsets"),
    ([0, 0, 0, 10, 13], "cu_seqlens_q has a sequence of 10 rows, but Sq is 9"),
])
def test_offsets_that_lead_elsewhere(offsets, words):
    q, k, v, lengths = packed_inputs()
    with pytest.raises(attn.BindingError, match=words):
        attn.compile(PACKED)(q, k, v, **{**lengths, "cu_seqlens_q": torch.tensor(offsets, dtype=torch.int32)})
    if offsets and offsets[0] == 0:
        with pytest.raises(attn.BindingError, match="cu_seqlens_kv"):
            attn.compile(PACKED)(q, k, v, **{**lengths, "cu_seqlens_kv": torch.tensor([0, 5, 4, 5, 30]).int()})


@pytest.mark.parametrize("entry", [-1, 20, 1 << 30])
def test_page_numbers_beyond_the_pool(entry):
    q, k, v = random(3, 4, 2, 8), random(20, 2, 4, 8), random(20, 2, 4, 8)
    table = torch.arange(9).reshape(3, 3).int()
    table[2, 1] = entry
    with pytest.raises(attn.BindingError, match=rf"page_table\[2, 1\] is {entry}, but k has 20 pages"):
        attn.compile(PAGED)(q, k, v, page_table=table, lengths_kv=torch.tensor([11, 2, 6], dtype=torch.int32))
