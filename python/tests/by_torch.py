"""Attentions by PyTorch's own operators in float64, and what compares with them: on the CPU with the reference,
on a GPU with kernels."""

import itertools

import torch

ON_GPU = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
DEVICE, DTYPE = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float64)
CLOSE = dict(atol=3e-2, rtol=3e-2) if ON_GPU else dict(atol=1e-9, rtol=1e-9)

SEEDS = itertools.count()


def normal(*shape, grad=True, dtype=DTYPE):
    """Other numbers in each call, the same in each run."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(next(SEEDS)), dtype=torch.float64)
    return values.to(DEVICE, dtype).requires_grad_(grad)


def positions(rows, keys):
    return torch.arange(rows, device=DEVICE)[:, None], torch.arange(keys, device=DEVICE)[None]


def softmax_attention(q, k, v, visible, added=0.0):
    """o of q [B, H, S, D], and of fewer heads of k and v, with 0 in rows that see nothing."""
    k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q.double() @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + added
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1).nan_to_num(0.0)
    return weights @ v


def expect_same(found, expected, inputs):
    """Compares the outputs, and the gradients of a sum of products that differ."""
    torch.testing.assert_close(found.double(), expected.double(), **CLOSE)
    d_o = normal(*found.shape, grad=False)
    ours = torch.autograd.grad(found, inputs, d_o)
    theirs = torch.autograd.grad(expected, inputs, d_o.to(expected.dtype))
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        scale = other.double().abs().max().item()
        torch.testing.assert_close(one.double() / scale, other.double() / scale, **CLOSE)
