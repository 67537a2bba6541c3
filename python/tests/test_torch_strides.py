"""Tensors of any strides and alignments: outputs and gradients are laid out as FlexAttention's are, and what kernels
cannot read is copied before a plan is chosen."""

import itertools

import pytest

torch = pytest.importorskip("torch")

from torch._higher_order_ops.flex_attention import _permute_strides  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attentions import traced  # noqa: E402
from attn import forms  # noqa: E402
from attn.torch import signature  # noqa: E402

SHAPE = (2, 3, 5, 8)
ORDERS = list(itertools.permutations(range(4)))


def laid_out(order, shape=SHAPE, **options):
    """A tensor whose dims have this order in memory."""
    made = torch.randn([shape[dim] for dim in order], **options)
    return made.permute([order.index(dim) for dim in range(4)])


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("compiled", [False, True])
def test_outputs_and_gradients_have_the_order_of_the_inputs(order, compiled):
    others = [ORDERS[(ORDERS.index(order) + step) % len(ORDERS)] for step in (7, 13)]
    q, k, v = (laid_out(each).requires_grad_() for each in (order, *others))
    f = attn.compile("attention c { dims B, Hq, Hkv, Sq, Skv, D; mask q_idx >= kv_idx; outputs o, lse; }")
    o, lse = (traced(f) if compiled else f)(q, k, v)
    wanted = _permute_strides(torch.empty(o.shape), q.stride())
    assert o.stride() == wanted.stride() and lse.is_contiguous()
    d_o = laid_out(others[0])
    found = torch.autograd.grad(o, (q, k, v), d_o)
    for x, gradient in zip((q, k, v), found):
        assert gradient.stride() == _permute_strides(torch.empty(x.shape), x.stride()).stride()
    dense = [x.detach().contiguous().requires_grad_() for x in (q, k, v)]
    expected = f(*dense)[0]
    torch.testing.assert_close(o, expected)
    torch.testing.assert_close(found, torch.autograd.grad(expected, dense, d_o))


@pytest.mark.parametrize("order", ORDERS)
def test_flex_attention(order):
    q, k, v = (laid_out(order) for _ in range(3))
    o = attn.torch.flex_attention(q, k, v, mask_mod=causal)
    assert o.stride() == _permute_strides(torch.empty(o.shape), q.stride()).stride()
    torch.testing.assert_close(o, attn.torch.flex_attention(
        *(x.contiguous() for x in (q, k, v)), mask_mod=causal).contiguous())


def at(offset, shape, strides=None, dtype=torch.bfloat16):
    """A tensor that begins at this element of memory that begins at a multiple of 16 bytes."""
    strides = strides or forms.dense_strides(shape, range(4))
    memory = torch.randn(offset + 1 + sum((n - 1) * step for n, step in zip(shape, strides))).to(dtype)
    assert memory.data_ptr() % 16 == 0
    return memory.as_strided(shape, strides, offset)


GAPS = (3 * 120, 3 * 40, 3 * 8, 1)  # of a third of a projection
CASES = {
    "as it is": (at(0, SHAPE), None),
    "gaps": (at(0, SHAPE, GAPS), None),
    "another order": (laid_out((0, 2, 1, 3)).bfloat16(), None),
    "misaligned": (at(1, SHAPE), (120, 40, 8, 1)),
    "misaligned, gaps": (at(4, SHAPE, GAPS), (120, 40, 8, 1)),
    "misaligned, another order": (at(1, SHAPE, (120, 8, 24, 1)), (120, 8, 24, 1)),
    "misaligned, gaps, another order": (at(1, SHAPE, (240, 16, 48, 1)), (120, 8, 24, 1)),
    "odd rows": (at(0, SHAPE, (165, 55, 11, 1)), (120, 40, 8, 1)),
    "elements apart": (at(0, SHAPE, (240, 80, 16, 2)), (120, 40, 8, 1)),
    "columns": (laid_out((0, 1, 3, 2)).bfloat16(), (120, 40, 8, 1)),
    "one batch for all": (at(0, (1, *SHAPE[1:])).expand(SHAPE), (120, 40, 8, 1)),
    "one head for all": (at(1, (2, 1, 5, 8), (80, 8, 16, 1)).expand(SHAPE), (120, 40, 8, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_what_kernels_cannot_read_is_copied(case):
    x, strides = CASES[case]
    found = signature.usable(x)
    torch.testing.assert_close(found, x, rtol=0, atol=0)
    assert found.data_ptr() % 16 == 0
    assert found is x if strides is None else found.stride() == strides
    words = forms.layout_of(found.shape, found.stride())
    form = forms.Form(forms.Sizes(2, 3, 3, 5, 5, 8, 8), "bf16", (words,) * 3, words, False)
    assert forms.input_strides(form, "q") == found.stride()


def test_copies_have_gradients():
    x = at(1, SHAPE, GAPS, torch.float32).requires_grad_()
    signature.usable(x).sum().backward()
    assert (x.grad == 1).all()


def test_captured_tensors_of_any_strides():
    table, documents = torch.randn(9, 10, 3).permute(2, 1, 0), torch.arange(10)[::2] // 4

    def near(score, b, h, q_idx, kv_idx):
        return score + table[h, 2 * q_idx, kv_idx]

    def same(b, h, q_idx, kv_idx):
        return documents[q_idx] == documents[kv_idx]

    q, k, v = (torch.randn(SHAPE) for _ in range(3))
    found = attn.torch.flex_attention(q, k, v, near, mask_mod=same)
    kept = documents.contiguous()
    bias = torch.where(kept[:, None] == kept, table[:, ::2, :5], -torch.inf)
    torch.testing.assert_close(found, torch.nn.functional.scaled_dot_product_attention(q, k, v, bias))
