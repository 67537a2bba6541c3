"""Block masks: what their blocks show, by the mask_mod or whole. They cost nothing where the mask_mod says the same."""

import functools
import gc
import weakref

import numpy
import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import BlockMask, create_block_mask, noop_mask  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attentions import traced  # noqa: E402

S, SMALL = 40, 16


def qkv(rows=S, keys=S, dtype=torch.float32):
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(2, 2, length, 8, generator=generator).to(dtype) for length in (rows, keys, keys)]


def made(mask_mod, B=None, H=None, rows=S, keys=S, size=SMALL):
    return create_block_mask(mask_mod, B, H, rows, keys, device="cpu", BLOCK_SIZE=size)


def listed(blocks, mask_mod=None, full=None, size=SMALL, lengths=(S, S)):
    """A block mask of a matrix of blocks that are computed, and one of those that are computed without the
    mask_mod."""
    def lists(matrix):
        counts = matrix.sum(-1).int()[None, None]
        return counts, torch.argsort(matrix.int(), dim=-1, descending=True, stable=True).int()[None, None]

    return BlockMask.from_kv_blocks(*lists(blocks), *(lists(full) if full is not None else (None, None)),
                                    BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=lengths)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def by_batch(b, h, q_idx, kv_idx):
    return q_idx - kv_idx < 12 + 9 * b


def by_head(b, h, q_idx, kv_idx):
    return torch.abs(q_idx - kv_idx) < 5 + 17 * h


def documents(lengths=(7, 20, 13)):
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).int()

    def same(b, h, q_idx, kv_idx):
        return ids[q_idx] == ids[kv_idx]

    return same, ids


@pytest.mark.parametrize("size", [16, 128, (16, 8), (8, 32)])
@pytest.mark.parametrize("mask, batches, heads", [
    (causal, None, None), (causal, 2, 2), (by_batch, 2, None), (by_head, None, 2), (by_head, 2, 2),
    (documents()[0], None, None), (noop_mask, None, None)])
def test_what_create_block_mask_makes_is_accepted(mask, batches, heads, size):
    q, k, v = qkv()
    found = attn.torch.flex_attention(q, k, v, block_mask=made(mask, batches, heads, size=size))
    torch.testing.assert_close(found, attn.torch.flex_attention(q, k, v, mask_mod=mask))


@pytest.mark.parametrize("rows, keys", [(1, 40), (17, 33), (40, 16)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_lengths_and_types(rows, keys, dtype):
    q, k, v = qkv(rows, keys, dtype)
    shifted = lambda b, h, q_idx, kv_idx: q_idx + 3 >= kv_idx  # noqa: E731
    block_mask = made(shifted, rows=rows, keys=keys)
    rows_first = q.transpose(1, 2).contiguous().transpose(1, 2)
    found = traced(attn.torch.flex_attention)(rows_first, k, v, block_mask=block_mask)
    torch.testing.assert_close(found, attn.torch.flex_attention(q, k, v, mask_mod=shifted), check_stride=False)


def expected(q, k, v, block_mask):
    """As FlexAttention computes it, densely."""
    (rows, keys), (batches, heads) = block_mask.BLOCK_SIZE, block_mask.kv_num_blocks.shape[:2]
    b, h, i, j = torch.meshgrid(*(torch.arange(n) for n in (*q.shape[:3], k.shape[2])), indexing="ij")
    at = (b if batches > 1 else 0, h if heads > 1 else 0, i // rows, j // keys)
    mask = torch.vmap(block_mask.mask_mod)(*(x.flatten() for x in (b, h, i, j))).reshape(b.shape)
    full = torch.zeros_like(mask)
    if block_mask.full_kv_num_blocks is not None:
        whole = BlockMask.from_kv_blocks(block_mask.full_kv_num_blocks, block_mask.full_kv_indices,
                                         BLOCK_SIZE=block_mask.BLOCK_SIZE, seq_lengths=block_mask.seq_lengths)
        full = whole.to_dense().bool()[at]
    listed = BlockMask.from_kv_blocks(block_mask.kv_num_blocks, block_mask.kv_indices,
                                      BLOCK_SIZE=block_mask.BLOCK_SIZE, seq_lengths=block_mask.seq_lengths)
    seen = full | (listed.to_dense().bool()[at] & mask)
    score = torch.where(seen, q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1e30)
    return (score.softmax(-1) * seen) @ v


def spec_of(call):
    """The text of the attention that a call computes."""
    seen, run = [], attn.Attention.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attn.Attention, "__call__", lambda self, *args, **kwargs: (
            seen.append(self.spec), run(self, *args, **kwargs))[1])
        call()
    return seen[-1]


def top(count, down, across, seed=0, batches=1, heads=1):
    """For each row of blocks some blocks, in any order: as a choice of the best ones makes them."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.rand(batches, heads, down, across, generator=generator).argsort(-1).int()
    return torch.full((batches, heads, down), count, dtype=torch.int32), indices


@pytest.mark.parametrize("size", [16, (16, 8), (8, 32), 64, (7, 5)])
@pytest.mark.parametrize("batches, heads", [(1, 1), (2, 2), (1, 2)])
@pytest.mark.parametrize("mask", [None, causal, by_head])
def test_blocks_that_were_chosen(size, batches, heads, mask):
    rows, keys = (size, size) if isinstance(size, int) else size
    down, across = -(-S // rows), -(-33 // keys)
    lists = top(max(1, across // 2), down, across, batches=batches, heads=heads)
    block_mask = BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=size, mask_mod=mask, seq_lengths=(S, 33))
    q, k, v = (x.requires_grad_() for x in qkv(S, 33))
    found = attn.torch.flex_attention(q, k, v, block_mask=block_mask)
    wanted = expected(q, k, v, block_mask)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), (q, k, v)),
                               torch.autograd.grad(wanted.square().sum(), (q, k, v)), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("make", [
    lambda: made(by_head, 2, 2), lambda: made(noop_mask), lambda: listed(torch.eye(3, dtype=torch.bool)),
    lambda: listed(torch.eye(3, dtype=torch.bool), by_batch, lower() ^ torch.eye(3, dtype=torch.bool))])
def test_in_a_program_that_is_compiled(make):
    q, k, v = (x.requires_grad_() for x in qkv())
    block_mask = make()
    found = traced(attn.torch.flex_attention)(q, k, v, block_mask=block_mask)
    wanted = attn.torch.flex_attention(q, k, v, block_mask=block_mask)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), (q, k, v)),
                               torch.autograd.grad(wanted.square().sum(), (q, k, v)))


def test_a_compiled_program_looks_at_blocks_when_it_is_called(monkeypatch):
    """It computes without those that it was traced with, if they follow from the mask; and with all others."""
    from attn.torch import operators

    resolved, computed = operators.listed_calls.resolved, []
    monkeypatch.setattr(operators.listed_calls, "resolved", lambda *args: (
        computed.append(found := resolved(*args)), found)[1])
    q, k, v = (x.requires_grad_() for x in qkv())
    run = traced(attn.torch.flex_attention)

    def reads_blocks(block_mask):
        found = run(q, k, v, block_mask=block_mask)
        torch.testing.assert_close(found, expected(q, k, v, block_mask), atol=1e-5, rtol=1e-5)
        found.sum().backward()
        assert len({name for name, _, _ in computed[-2:]}) == 1
        return "blocks" in computed[-1][0] or "values" in computed[-1][0]

    block_mask = made(causal)
    assert [reads_blocks(block_mask) for _ in range(3)] == [False] * 3
    assert reads_blocks(made(causal)) and not reads_blocks(block_mask)
    block_mask.kv_num_blocks.sub_(1).clamp_(min=0)
    assert reads_blocks(block_mask) and reads_blocks(block_mask)


BACKENDS = ["inductor", "aot_eager"]


def compiled(function, backend):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend)


def of_columns(columns):
    """The lists of one block for each of two rows of blocks."""
    indices = torch.tensor([[[[column, 0] for column in columns]]], dtype=torch.int32)
    return torch.ones(1, 1, 2, dtype=torch.int32), indices


def of_lists(counts, indices):
    return BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=20, compute_q_blocks=False)


def close(found, q, k, v, block_mask):
    torch.testing.assert_close(found, expected(q, k, v, block_mask), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("inference", [False, True])
def test_a_compiled_program_has_other_lists_at_each_call(backend, inference):
    """Given as they are; as views that the program makes; and written to between calls, or by the program."""
    q, k, v = qkv()
    given = compiled(lambda block_mask: attn.torch.flex_attention(q, k, v, block_mask=block_mask), backend)
    viewed = compiled(lambda counts, indices: attn.torch.flex_attention(
        q, k, v, block_mask=of_lists(counts[None, None], indices[:1])), backend)
    written = compiled(lambda counts, indices, new: attn.torch.flex_attention(
        q, k, v, block_mask=of_lists(counts, indices.copy_(new))), backend)
    with torch.inference_mode(inference):
        whole = of_columns([0, 0])[1].repeat(2, 1, 1, 1)
        counts, buffer = of_columns([1, 1])
        for columns in ([0, 1], [1, 0], [0, 0]):
            lists = of_columns(columns)
            close(given(of_lists(*lists)), q, k, v, of_lists(*lists))
            whole.copy_(lists[1])
            close(viewed(counts[0, 0], whole), q, k, v, of_lists(*lists))
            close(written(counts, buffer, lists[1]), q, k, v, of_lists(*lists))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_program_writes_to_the_lists_of_its_block_mask(backend):
    q, k, v = qkv()
    block_mask = made(causal)

    @functools.partial(compiled, backend=backend)
    def run(new):
        block_mask.kv_num_blocks.copy_(new)
        return attn.torch.flex_attention(q, k, v, block_mask=block_mask)

    first = block_mask.kv_num_blocks.clone()
    for new in (first, (first - 1).clamp(min=0), first):
        close(run(new), q, k, v, with_counts(block_mask, new))


def with_counts(block_mask, counts):
    return BlockMask.from_kv_blocks(counts, block_mask.kv_indices, block_mask.full_kv_num_blocks,
                                    block_mask.full_kv_indices, BLOCK_SIZE=block_mask.BLOCK_SIZE,
                                    mask_mod=block_mask.mask_mod, seq_lengths=block_mask.seq_lengths)


def test_a_compiled_program_keeps_no_lists():
    q, k, v = qkv()
    run = compiled(lambda block_mask: attn.torch.flex_attention(q, k, v, block_mask=block_mask), "aot_eager")
    lists = []
    for _ in range(3):
        block_mask = made(causal)
        run(block_mask)
        lists.append(weakref.ref(block_mask.kv_indices))
    del block_mask
    torch._dynamo.reset()
    gc.collect()
    assert not any(one() is not None for one in lists)


def test_blocks_in_an_exported_program(tmp_path):
    """Which another process reads, that has not compared them."""
    q, k, v = qkv()

    class Model(torch.nn.Module):
        def __init__(self, block_mask):
            super().__init__()
            self.block_mask = block_mask

        def forward(self, q, k, v):
            return attn.torch.flex_attention(q, k, v, block_mask=self.block_mask)

    for block_mask in (made(causal), listed(torch.eye(3, dtype=torch.bool), by_batch)):
        for strict in (True, False):
            program = torch.export.export(Model(block_mask), (q, k, v), strict=strict)
            from attn.torch import listed_calls

            listed_calls._proven.clear()
            torch.testing.assert_close(program.module()(q, k, v), expected(q, k, v, block_mask), atol=1e-5, rtol=1e-5)


def test_full_blocks_show_what_the_mask_hides():
    q, k, v = qkv()
    block_mask = listed(torch.eye(3, dtype=torch.bool), by_batch, lower() ^ torch.eye(3, dtype=torch.bool))
    found = attn.torch.flex_attention(q, k, v, block_mask=block_mask)
    torch.testing.assert_close(found, expected(q, k, v, block_mask), atol=1e-5, rtol=1e-5)
    text = spec_of(lambda: attn.torch.flex_attention(q, k, v, block_mask=block_mask))
    assert "blocks[0, 0, q_idx // 16, kv_idx // 16]" in text and "== 2" in text


def test_a_mask_whose_full_blocks_are_whole_keeps_its_band():
    """Then the compiler still skips what the mask hides."""
    q, k, v = qkv()
    some = lower()
    some[2, 0] = False
    block_mask = listed(torch.eye(3, dtype=torch.bool), causal, some ^ torch.eye(3, dtype=torch.bool))
    text = spec_of(lambda: attn.torch.flex_attention(q, k, v, block_mask=block_mask))
    assert "> 0 && q_idx >= kv_idx" in text
    torch.testing.assert_close(attn.torch.flex_attention(q, k, v, block_mask=block_mask),
                               expected(q, k, v, block_mask), atol=1e-5, rtol=1e-5)


def test_blocks_that_follow_from_the_mask_are_not_read():
    q, k, v = qkv()
    assert "blocks" not in spec_of(lambda: attn.torch.flex_attention(q, k, v, block_mask=made(by_head, 2, 2)))
    assert "blocks" not in spec_of(lambda: attn.torch.flex_attention(q, k, v, block_mask=made(noop_mask)))
    assert "blocks" in spec_of(lambda: attn.torch.flex_attention(q, k, v, block_mask=made(by_batch)))


def test_blocks_that_are_written_to():
    q, k, v = qkv()
    block_mask = listed(lower(), causal)
    for _ in range(3):
        found = attn.torch.flex_attention(q, k, v, block_mask=block_mask)
        torch.testing.assert_close(found, expected(q, k, v, block_mask), atol=1e-5, rtol=1e-5)
        block_mask.kv_num_blocks.sub_(1).clamp_(min=0)
    block_mask.kv_num_blocks = torch.ones_like(block_mask.kv_num_blocks)
    found = attn.torch.flex_attention(q, k, v, block_mask=block_mask)
    torch.testing.assert_close(found, expected(q, k, v, block_mask), atol=1e-5, rtol=1e-5)


def test_a_mask_that_cannot_be_compared():
    """PyTorch cannot evaluate it for many scores at once: the blocks count."""
    q, k, v = qkv()
    some = lower()
    some[2, 0] = False
    found = attn.torch.flex_attention(q, k, v, block_mask=with_mask(listed(some, causal), fails))
    torch.testing.assert_close(found, expected(q, k, v, listed(some, causal)), atol=1e-5, rtol=1e-5)


def lower(count=3):
    return torch.ones(count, count, dtype=torch.bool).tril()


REFUSED = {
    "a block twice": (lambda: listed(lower(), causal, torch.eye(3, dtype=torch.bool)), "lists a block twice"),
    "batches": (lambda: made(causal, 3), r"has the batches and heads \[3, 1\]"),
    "heads": (lambda: made(causal, 1, 4), r"has the batches and heads \[1, 4\]"),
    "rows": (lambda: made(causal, rows=48), "block_mask is of 48 rows and 40 keys, but query has 40 rows"),
    "keys": (lambda: made(causal, keys=24), "block_mask is of 40 rows and 24 keys"),
    "a slice": (lambda: made(causal)[:, :, 1:], "block_mask is a slice of another one"),
    "a slice of batches": (lambda: made(causal, 2)[0], "block_mask is a slice of another one"),
    "adjusted": (lambda: made(causal, rows=64, keys=64)._adjust(32, 32), "block_mask is of 32 rows and 32 keys"),
    "too few rows of blocks": (lambda: listed(torch.ones(2, 3, dtype=torch.bool)), "has 2 rows of blocks"),
    "keys beyond": (lambda: listed(torch.ones(3, 4, dtype=torch.bool)), "beyond its 3 blocks of 16 keys"),
    "no block mask": (lambda: torch.ones(S, S), "block_mask is a Tensor, not a BlockMask"),
    "a function": (lambda: causal, r"a mask_mod is given by name: flex_attention\(.., mask_mod=f\)"),
}


def with_mask(block_mask, mask_mod):
    block_mask.mask_mod = mask_mod
    return block_mask


ARRAY = numpy.arange(S)


def fails(b, h, q_idx, kv_idx):
    """PyTorch cannot index an array by values of its own transformations."""
    return ARRAY[q_idx] >= kv_idx


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    make, words = REFUSED[case]
    with pytest.raises(attn.Error, match=words):
        attn.torch.flex_attention(*qkv(), block_mask=make())


def test_the_length_of_a_cropped_mask_that_fits():
    cropped = made(causal, rows=64, keys=64)._adjust(48, 48)
    q, k, v = qkv(48, 48)
    torch.testing.assert_close(attn.torch.flex_attention(q, k, v, block_mask=cropped),
                               attn.torch.flex_attention(q, k, v, mask_mod=causal))


def test_decoding_with_a_row_of_blocks():
    """As FlexAttention's users do: a slice that gets a mask_mod and lengths again."""
    last = made(causal)[:, :, 2:]
    last.seq_lengths, last.mask_mod = (1, S), lambda b, h, q_idx, kv_idx: q_idx + S - 1 >= kv_idx
    q, k, v = qkv(1)
    torch.testing.assert_close(attn.torch.flex_attention(q, k, v, block_mask=last),
                               attn.torch.flex_attention(q, k, v))


def test_a_block_mask_is_compared_once(monkeypatch):
    from attn.torch import blocks

    compare, compared = blocks._compare, []
    monkeypatch.setattr(blocks, "_compare", lambda *args: (compared.append(None), compare(*args))[1])
    same, ids = documents()
    block_mask, (q, k, v) = made(same), qkv()

    def comparisons():
        before = len(compared)
        attn.torch.flex_attention(q, k, v, block_mask=block_mask)
        return len(compared) - before

    assert [comparisons() for _ in range(3)] == [1, 0, 0]
    q.mul_(2)
    ids.copy_(ids.clone())  # written, with the same elements
    assert comparisons() == 0
    ids.zero_()
    assert comparisons() == 1
    assert "blocks" in spec_of(comparisons)
    ids.copy_(documents()[1])
    assert comparisons() == 1
    assert "blocks" not in spec_of(comparisons)
    block_mask.kv_num_blocks.zero_()
    assert comparisons() == 1
    torch.testing.assert_close(attn.torch.flex_attention(q, k, v, block_mask=block_mask),
                               expected(q, k, v, block_mask), atol=1e-5, rtol=1e-5)


def test_a_repeated_call_looks_at_nothing_but_tensors(monkeypatch):
    """Until one of them, or the block mask, is another one or was written to."""
    from attn.torch import blocks

    added, calls = blocks.added, []
    monkeypatch.setattr(blocks, "added", lambda *args: (calls.append(None), added(*args))[1])
    same, ids = documents()
    block_mask, (q, k, v) = made(same), qkv()

    def looks():
        before = len(calls)
        close(attn.torch.flex_attention(q, k, v, block_mask=block_mask), q, k, v, block_mask)
        return len(calls) > before

    def changes(change):
        change()
        return looks(), looks()

    assert changes(lambda: None) == (True, False)
    assert changes(lambda: ids.copy_(ids.clone())) == (True, False)
    assert changes(lambda: setattr(ids, "data", ids.clone())) == (True, False)
    assert changes(lambda: block_mask.kv_indices.copy_(block_mask.kv_indices.clone())) == (True, False)
    assert changes(lambda: setattr(block_mask, "kv_indices", block_mask.kv_indices.clone())) == (True, False)
    assert changes(lambda: setattr(block_mask, "mask_mod", causal)) == (True, True)  # blocks hide some of it
    assert changes(lambda: setattr(block_mask, "mask_mod", same)) == (True, False)
    shorter = [x[:, :, :-1] for x in (q, k, v)]
    with pytest.raises(attn.BindingError, match="block_mask is of"):
        attn.torch.flex_attention(*shorter, block_mask=block_mask)


def test_layers_compare_a_block_mask_once(monkeypatch):
    """That differ in what a mask does not read; also of a mask that computes tensors."""
    from attn.torch import blocks

    compare, compared = blocks._compare, []
    monkeypatch.setattr(blocks, "_compare", lambda *args: (compared.append(None), compare(*args))[1])
    looked, equal = [], torch.equal
    monkeypatch.setattr(torch, "equal", lambda *args: (looked.append(None), equal(*args))[1])
    steps = torch.randint(0, 2, (S,), generator=torch.Generator().manual_seed(3))

    def by_sums(b, h, q_idx, kv_idx):
        return steps.cumsum(0)[q_idx] == steps.cumsum(0)[kv_idx]

    def half(score, b, h, q_idx, kv_idx):
        return score / 2

    q, k, v = qkv()
    for mask in (causal, by_sums):
        block_mask = made(mask)
        del compared[:], looked[:]
        for _ in range(3):
            attn.torch.flex_attention(q, k, v, block_mask=block_mask)
            attn.torch.flex_attention(q, k, v, half, block_mask=block_mask)
            attn.torch.flex_attention(q[..., :4], k[..., :4], v, block_mask=block_mask, return_lse=True)
        # Each of three traces computes its tensors in its own way.
        assert len(compared) == (3 if mask is by_sums else 1) and not looked
    steps.zero_()
    close(attn.torch.flex_attention(q, k, v, block_mask=block_mask), q, k, v, block_mask)
    assert len(compared) == 4


def test_all_heads_are_compared_at_once(monkeypatch):
    import torch.nn.attention.flex_attention as flex

    block_mask, calls, create = made(by_head, 2, 2), [], flex.create_mask
    monkeypatch.setattr(flex, "create_mask", lambda *args, **rest: (calls.append(None), create(*args, **rest))[1])
    attn.torch.flex_attention(*qkv(), block_mask=block_mask)
    assert len(calls) == 1


@pytest.mark.parametrize("mask", [causal, None])
def test_lists_that_are_written_to_uncounted(mask):
    """What a block mask hides is read at each call."""
    q, k, v = qkv()
    counts = numpy.ones((1, 1, 3), dtype=numpy.int32)
    indices = torch.tensor([[[[0, 1, 2], [0, 1, 2], [2, 1, 0]]]], dtype=torch.int32)
    block_mask = BlockMask.from_kv_blocks(torch.from_numpy(counts), indices, BLOCK_SIZE=SMALL, mask_mod=mask,
                                          seq_lengths=(S, S))
    close(attn.torch.flex_attention(q, k, v, block_mask=block_mask), q, k, v, block_mask)
    counts[...] = 2
    close(attn.torch.flex_attention(q, k, v, block_mask=block_mask), q, k, v, block_mask)
    block_mask.kv_indices.data[..., 0] = 1
    block_mask.kv_num_blocks.data[...] = 1
    close(attn.torch.flex_attention(q, k, v, block_mask=block_mask), q, k, v, block_mask)


def test_uncounted_writes_to_blocks_that_said_nothing_are_told():
    q, k, v = qkv()
    block_mask = made(causal)
    attn.torch.flex_attention(q, k, v, block_mask=block_mask)
    block_mask.kv_num_blocks.data.zero_()
    torch.autograd.graph.increment_version(block_mask.kv_num_blocks)
    close(attn.torch.flex_attention(q, k, v, block_mask=block_mask), q, k, v, block_mask)


def test_an_array_of_blocks_is_forgotten_with_its_mask():
    from attn.torch import blocks

    block_mask = made(causal)
    attn.torch.flex_attention(*qkv(), block_mask=block_mask)
    key = id(block_mask)
    assert key in blocks._known
    del block_mask
    assert key not in blocks._known


def test_large_masks_are_compared_in_parts(monkeypatch):
    from attn.torch import blocks

    monkeypatch.setattr(blocks, "MOST_ELEMENTS", 1)
    q, k, v = qkv()
    attn.torch.flex_attention(q, k, v, block_mask=made(by_head, 2, 2))
    hidden = lower()
    hidden[2, 0] = False
    assert "blocks" in spec_of(lambda: attn.torch.flex_attention(q, k, v, block_mask=listed(hidden, causal)))


def test_in_inference_mode():
    """Where tensors do not count what is written to them."""
    with torch.inference_mode():
        same, ids = documents()
        block_mask, (q, k, v) = made(same), qkv()
        for _ in range(2):
            found = attn.torch.flex_attention(q, k, v, block_mask=block_mask)
        torch.testing.assert_close(found, attn.torch.flex_attention(q, k, v, mask_mod=same))
        ids.zero_()
        found = attn.torch.flex_attention(q, k, v, block_mask=block_mask)
    torch.testing.assert_close(found, expected(q, k, v, block_mask), atol=1e-5, rtol=1e-5)
