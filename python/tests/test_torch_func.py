"""Attentions within torch.func's transformations, beside a dense computation."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch.func import functional_call, grad, jacrev, vjp, vmap  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402


def tensors(*shapes):
    generator = torch.Generator().manual_seed(8)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


SHAPE = (2, 3, 5, 8)
F = attn.compile("attention c { dims B, Hq, Hkv, Sq, Skv, D; mask q_idx >= kv_idx; outputs o, lse; }")


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def ours(q, k, v):
    return F(q, k, v)[0]


def flex(q, k, v):
    return attn.torch.flex_attention(q, k, v, mask_mod=causal)


def by_blocks(q, k, v):
    return attn.torch.flex_attention(q, k, v, block_mask=create_block_mask(causal, None, None, 5, 5, device="cpu"))


def dense(q, k, v, bias=None):
    score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    score = score if bias is None else score + bias
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    return score.masked_fill(hidden, -math.inf).softmax(-1) @ v


FUNCTIONS = pytest.mark.parametrize("function", [ours, flex, by_blocks])


@FUNCTIONS
def test_gradients(function):
    q, k, v, d_o = tensors(*(SHAPE,) * 4)
    for argnums in (0, (0, 1, 2)):
        found, wanted = (grad(lambda *x, f=f: (f(*x) * d_o).sum(), argnums)(q, k, v) for f in (function, dense))
        torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(vjp(function, q, k, v)[1](d_o), vjp(dense, q, k, v)[1](d_o))


@FUNCTIONS
@pytest.mark.parametrize("in_dims", [(0, 0, 0), (2, None, 0), (-1, 1, 3), (None, None, 0)])
def test_mapped(function, in_dims):
    q, k, v = (x if dim is None else torch.stack([x, x + 1, -x], dim)
               for x, dim in zip(tensors(*(SHAPE,) * 3), in_dims))
    for out_dim in (0, 2):
        found, wanted = (vmap(f, in_dims, out_dim)(q, k, v) for f in (function, dense))
        torch.testing.assert_close(found, wanted)


@FUNCTIONS
def test_transformations_of_transformations(function):
    q, k, v = tensors((3, *SHAPE), SHAPE, SHAPE)

    def loss(f):
        return lambda q, k, v: f(q, k, v).square().sum()

    each = [vmap(grad(loss(f), (0, 1)), (0, None, None))(q, k, v) for f in (function, dense)]
    torch.testing.assert_close(*each)
    whole = [grad(lambda q, f=f: vmap(f, (0, None, None))(q, k, v).square().sum())(q) for f in (function, dense)]
    torch.testing.assert_close(*whole)
    nested = [vmap(vmap(f, (0, None, 0)), (0, None, None))(q[None], k, v.expand(3, *SHAPE)) for f in (function, dense)]
    torch.testing.assert_close(*nested)
    torch.testing.assert_close(*(jacrev(lambda q, f=f: f(q, k, v)[0, 0, 0, :2])(q[0]) for f in (function, dense)))


def test_through_lse():
    q, k, v = tensors(*(SHAPE,) * 3)

    def lse(q, k, v):
        score = q @ k.transpose(-1, -2) / math.sqrt(8)
        return score.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -math.inf).logsumexp(-1)

    found = [grad(lambda q, f=f: f(q, k, v).square().sum())(q) for f in (lambda *x: F(*x)[1], lse)]
    torch.testing.assert_close(*found)


def test_captured_tensors():
    """For each mapped index its own, with gradients of each sample."""
    q, k, v, tables = tensors(*(SHAPE,) * 3, (4, 3, 5, 5))

    def biased(table, q):
        def add(score, b, h, q_idx, kv_idx):
            return score + table[h, q_idx, kv_idx]

        return attn.torch.flex_attention(q, k, v, add, mask_mod=causal)

    def wanted(table, q):
        return dense(q, k, v, table)

    torch.testing.assert_close(*(vmap(f, (0, None))(tables, q) for f in (biased, wanted)))
    torch.testing.assert_close(*(vmap(grad(lambda t, q, f=f: f(t, q).square().sum()), (0, None))(tables, q)
                                 for f in (biased, wanted)))


def test_a_module_that_is_called_with_other_parameters():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.eye(8, dtype=torch.float64))

        def forward(self, q, k, v):
            return flex(q @ self.weight, k, v)

    layer, (q, k, v, other) = Layer(), tensors(*(SHAPE,) * 3, (8, 8))
    found = grad(lambda weight: functional_call(layer, {"weight": weight}, (q, k, v)).sum())(other)
    torch.testing.assert_close(found, grad(lambda weight: dense(q @ weight, k, v).sum())(other))


def test_a_second_derivative_is_refused():
    q, k, v = tensors(*(SHAPE,) * 3)
    with pytest.raises(attn.UnsupportedError, match="second derivatives"):
        grad(lambda q: grad(lambda q: flex(q, k, v).square().sum())(q).sum())(q)


def test_without_a_row():
    q, k, v = (torch.randn(3, 2, 2, n, 8) for n in (0, 5, 5))
    assert vmap(ours)(q, k, v).shape == (3, 2, 2, 0, 8)


def test_a_mapped_dim_of_size_0():
    q, k, v = tensors((0, *SHAPE), SHAPE, (*SHAPE[:2], 7, 8))
    q = q.movedim(0, 2)
    k = torch.cat([k, k[:, :, :2]], 2)
    o, lse = vmap(lambda q: F(q, k, v), in_dims=2)(q)
    assert o.shape == (0, *SHAPE) and lse.shape == (0, *SHAPE[:3])
    gradients = vmap(grad(lambda q, k: ours(q, k, v).sum(), argnums=(0, 1)), in_dims=(2, None))(q, k)
    assert [x.shape for x in gradients] == [(0, *SHAPE), (0, *k.shape)]
