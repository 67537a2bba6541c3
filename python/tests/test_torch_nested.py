"""Jagged nested tensors, against attention of one sequence after the other."""

import math

import pytest

torch = pytest.importorskip("torch")

import attn.torch  # noqa: E402
from attn.torch import flex, flex_attention  # noqa: E402
from attn.torch.facts import facts_of  # noqa: E402

LENGTHS = [3, 5, 1, 40]
HEADS, HEADS_KV, DEPTH = 4, 2, 8


def jagged(lengths, heads, seed=0, width=DEPTH):
    """[B, H, j, D], and the leaf that it is a view of, [B, j, H, D]."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(sum(lengths), heads, width, generator=generator)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    leaf = torch.nested.nested_tensor_from_jagged(values, offsets).requires_grad_()
    return leaf.transpose(1, 2), leaf


def of_sequence(q, k, v, score_mod, mask_mod, b):
    """o and lse of one sequence, [H, S, ..]."""
    k, v = (x.repeat_interleave(HEADS // HEADS_KV, 0) for x in (k, v))
    h, i, j = torch.meshgrid(*map(torch.arange, (HEADS, q.shape[1], k.shape[1])), indexing="ij")
    s = q @ k.mT / math.sqrt(DEPTH)
    s = s if score_mod is None else score_mod(s, b, h, i, j)
    s = s if mask_mod is None else s.masked_fill(~mask_mod(b, h, i, j), -math.inf)
    return s.softmax(-1) @ v, s.logsumexp(-1)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


BIAS = torch.randn(HEADS, 40, 40, generator=torch.Generator().manual_seed(7)).requires_grad_()
SCALE = torch.randn(len(LENGTHS), HEADS, generator=torch.Generator().manual_seed(8))


def biased(score, b, h, q_idx, kv_idx):
    return score * SCALE[b, h] + BIAS[h, q_idx, kv_idx]


def doubled(score, b, h, q_idx, kv_idx):
    return score * 2 - (q_idx - kv_idx)


def gradients(loss, leaves):
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [x.values() if x is not None and x.is_nested else x for x in found]


@pytest.mark.parametrize("score_mod", [None, doubled, biased])
@pytest.mark.parametrize("mask_mod", [None, causal])
def test_sequences_are_computed_apart(score_mod, mask_mod):
    (q, *of_q), (k, *of_k), (v, *of_v) = (jagged(LENGTHS, heads, seed)
                                          for seed, heads in enumerate((HEADS, HEADS_KV, HEADS_KV)))
    o, lse = flex_attention(q, k, v, score_mod, mask_mod=mask_mod, enable_gqa=True, return_lse=True)
    assert o.is_nested and o.shape == q.shape and lse.shape == q.shape[:3]
    weights = torch.randn(sum(LENGTHS), generator=torch.Generator().manual_seed(9)).split(LENGTHS)
    expected = [of_sequence(*(x.unbind()[b] for x in (q, k, v)), score_mod, mask_mod, b) for b in range(len(LENGTHS))]
    for found, right in ((o, [x for x, _ in expected]), (lse, [x for _, x in expected])):
        for one, other in zip(found.unbind(), right):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    leaves = [*of_q, *of_k, *of_v, *([BIAS] if score_mod is biased else [])]
    losses = [sum((x * w[None, :, None]).sum() for x, w in zip(each, weights))
              for each in (o.unbind(), [x for x, _ in expected])]
    for one, other in zip(gradients(losses[0], leaves), gradients(losses[1], leaves)):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_keys_of_other_lengths():
    keys = [4, 9, 2, 3]
    (q, _), (k, _), (v, _) = jagged(LENGTHS, HEADS), jagged(keys, HEADS, 1), jagged(keys, HEADS, 2, width=16)
    v = torch.nested.nested_tensor_from_jagged(v.transpose(1, 2).values(), k.offsets()).transpose(1, 2)
    o = flex_attention(q, k, v)
    for b, one in enumerate(o.unbind()):
        qs, ks, vs = (x.unbind()[b] for x in (q, k, v))
        torch.testing.assert_close(one, (qs @ ks.mT / math.sqrt(DEPTH)).softmax(-1) @ vs, atol=1e-5, rtol=1e-5)


def test_batches_of_about_the_same_lengths_have_one_plan():
    flex._kept.clear()
    for lengths in ([3, 5], [100, 7], [128, 1]):
        q, _ = jagged(lengths, HEADS)
        flex_attention(q, q, q, mask_mod=causal)
    assert len(flex._kept) == 1
    q, _ = jagged([129, 2], HEADS)
    flex_attention(q, q, q, mask_mod=causal)
    assert len(flex._kept) == 2


def test_an_attention_of_packed_sequences():
    f = attn.compile("attention a { dims B, Hq, Hkv, Sq, Skv, D; layout thd; mask q_idx >= kv_idx; outputs o, lse; }",
                     B=len(LENGTHS), Hq=HEADS, Hkv=HEADS, Sq=64, Skv=64, D=DEPTH)
    assert facts_of(f).addressing is not None
    q, _ = jagged(LENGTHS, HEADS)
    for one, other in zip(f(q, q, q), flex_attention(q, q, q, mask_mod=causal, return_lse=True)):
        assert one.is_nested
        torch.testing.assert_close(one.values(), other.values(), atol=1e-5, rtol=1e-5)


def strided():
    q, _ = jagged(LENGTHS, HEADS)
    return q, q, torch.nested.nested_tensor([torch.randn(HEADS, n, DEPTH) for n in LENGTHS])


def with_gaps():
    q, _ = jagged(LENGTHS, HEADS)
    gaps = torch.nested.nested_tensor_from_jagged(q.transpose(1, 2).values(), q.offsets(), torch.tensor([1, 2, 1, 30]))
    return (gaps.transpose(1, 2),) * 3


@pytest.mark.parametrize("make, message", [
    (lambda: (jagged(LENGTHS, HEADS)[0], *(torch.randn(4, HEADS, 8, DEPTH),) * 2), "key is no nested tensor"),
    (lambda: (jagged(LENGTHS, HEADS)[1],) * 3, r"must be \[B, H, j, D\]"),
    (lambda: (jagged(LENGTHS, HEADS)[0], *(jagged([3, 4], HEADS)[0],) * 2), "4 sequences, but key 2"),
    (lambda: (*(jagged(LENGTHS, HEADS)[0],) * 2, jagged([5, 3, 1, 40], HEADS)[0]), "other lengths"),
    (lambda: (jagged(LENGTHS, HEADS)[0], *(jagged(LENGTHS, HEADS, width=16)[0],) * 2), "D of query and key"),
    (lambda: (jagged(LENGTHS, HEADS)[0], *(jagged(LENGTHS, 2)[0],) * 2), "pass enable_gqa=True"),
    (strided, "another layout than torch.jagged"),
    (with_gaps, "with gaps"),
])
def test_what_does_not_fit_is_said(make, message):
    with pytest.raises(attn.Error, match=message):
        flex_attention(*make())


def test_block_masks_are_refused():
    from torch.nn.attention.flex_attention import create_block_mask

    q, _ = jagged(LENGTHS, HEADS)
    with pytest.raises(attn.BindingError, match="sequences of one length"):
        flex_attention(q, q, q, block_mask=create_block_mask(causal, None, None, 40, 40, device="cpu"))
    with pytest.raises(attn.UnsupportedError, match="this attention takes dense ones"):
        attn.compile("attention a { dims B, Hq, Sq, D; }")(q, q, q)
