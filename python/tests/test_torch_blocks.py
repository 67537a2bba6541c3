"""Block masks: accepted where their blocks say what their mask_mod says, and refused elsewhere."""

import numpy
import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import BlockMask, create_block_mask, noop_mask  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402

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
    run = torch.compile(attn.torch.flex_attention, backend="eager")
    found = run(q.transpose(1, 2).contiguous().transpose(1, 2), k, v, block_mask=block_mask)
    torch.testing.assert_close(found, attn.torch.flex_attention(q, k, v, mask_mod=shifted))


def test_blocks_without_a_mask_mod():
    """Which are the mask themselves."""
    blocks = torch.eye(3, dtype=torch.bool)
    q, k, v = qkv()
    with pytest.raises(attn.BindingError, match="hides a block, of which its mask_mod shows something") as caught:
        attn.torch.flex_attention(q, k, v, block_mask=listed(blocks))
    assert "rows 0 to 15, keys 16 to 31" in str(caught.value)
    assert "listed[0, 0, q // 16, kv // 16]" in str(caught.value)
    visible = listed(blocks).to_dense().bool()
    found = attn.torch.flex_attention(  # what the error proposes
        q, k, v, mask_mod=lambda b, h, q, kv: visible[0, 0, q // 16, kv // 16])
    seen = torch.arange(S)[:, None] // 16 == torch.arange(S) // 16
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    everything = listed(torch.ones(3, 3, dtype=torch.bool))
    torch.testing.assert_close(attn.torch.flex_attention(q, k, v, block_mask=everything),
                               attn.torch.flex_attention(q, k, v))


def lower(count=3):
    return torch.ones(count, count, dtype=torch.bool).tril()


REFUSED = {
    "a hidden block": (lambda: listed(torch.eye(3, dtype=torch.bool), causal), "hides a block"),
    "a whole block": (lambda: listed(lower() ^ torch.eye(3, dtype=torch.bool), causal,
                                     torch.eye(3, dtype=torch.bool)), "shows a whole block"),
    "a block twice": (lambda: listed(lower(), causal, torch.eye(3, dtype=torch.bool)), "lists a block twice"),
    "a batch alone": (lambda: made(by_batch), "rows 32 to 47, keys 0 to 15, batch 1, head 0"),
    "a head alone": (lambda: made(by_head, 2, None), "batch 0, head 1"),
    "batches": (lambda: made(causal, 3), r"has the batches and heads \[3, 1\]"),
    "heads": (lambda: made(causal, 1, 4), r"has the batches and heads \[1, 4\]"),
    "rows": (lambda: made(causal, rows=48), "block_mask is of 48 rows and 40 keys, but query has 40 rows"),
    "keys": (lambda: made(causal, keys=24), "block_mask is of 40 rows and 24 keys"),
    "a slice": (lambda: made(causal)[:, :, 1:], "block_mask is a slice of another one"),
    "a slice of batches": (lambda: made(causal, 2)[0], "block_mask is a slice of another one"),
    "adjusted": (lambda: made(causal, rows=64, keys=64)._adjust(32, 32), "block_mask is of 32 rows and 32 keys"),
    "another mask_mod": (lambda: with_mask(made(causal), lambda b, h, q, kv: q < kv), "hides a block"),
    "too few rows of blocks": (lambda: listed(torch.ones(2, 3, dtype=torch.bool)), "has 2 rows of blocks"),
    "keys beyond": (lambda: listed(torch.ones(3, 4, dtype=torch.bool)), "beyond its 3 blocks of 16 keys"),
    "a mask_mod that fails": (lambda: with_mask(made(causal), fails), "cannot be compared with its mask_mod"),
    "no block mask": (lambda: torch.ones(S, S), "block_mask is a Tensor, not a BlockMask"),
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
    monkeypatch.setattr(blocks, "_compare", lambda *args: (compared.append(None), compare(*args)))
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
    with pytest.raises(attn.BindingError, match="hides a block"):
        comparisons()
    ids.copy_(documents()[1])
    assert comparisons() == 0
    block_mask.kv_num_blocks.zero_()
    with pytest.raises(attn.BindingError, match="hides a block"):
        comparisons()


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
    with pytest.raises(attn.BindingError, match="rows 32 to 47, keys 0 to 15"):
        attn.torch.flex_attention(q, k, v, block_mask=listed(hidden, causal))


def test_in_inference_mode():
    """Where tensors do not count what is written to them."""
    with torch.inference_mode():
        same, ids = documents()
        block_mask, (q, k, v) = made(same), qkv()
        for _ in range(2):
            found = attn.torch.flex_attention(q, k, v, block_mask=block_mask)
        torch.testing.assert_close(found, attn.torch.flex_attention(q, k, v, mask_mod=same))
        ids.zero_()
        with pytest.raises(attn.BindingError, match="hides a block"):
            attn.torch.flex_attention(q, k, v, block_mask=block_mask)
