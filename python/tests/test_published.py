"""Specs of published attentions beside PyTorch, written from their papers without attnc: results and gradients."""

import pathlib

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402

SPECS = pathlib.Path(__file__).resolve().parents[2] / "specs"
B, H, S, D = 2, 3, 37, 16


def positions():
    return torch.arange(S)[:, None], torch.arange(S)[None, :]


def scores_of(q, k):
    return q @ k.transpose(-1, -2) / D**0.5


def causal(weights):
    return weights.tril()


def hstu(q, k, v, bias):
    """Zhai et al. 2024, equation 3: silu(q k + the bias of a distance) / n, of the keys before."""
    i, j = positions()
    scores = scores_of(q, k) + bias[:, (i - j).clamp(min=0)]
    return causal(torch.nn.functional.silu(scores) / S) @ v


def relu(q, k, v):
    """Wortsman et al. 2023: relu(q k) / n."""
    return torch.relu(scores_of(q, k)) / S @ v


def softpick(q, k, v):
    """Zuhri et al. 2025: relu(exp(x) - 1) over the sum of |exp(x) - 1|, of the keys before."""
    above = causal(torch.expm1(scores_of(q, k)))
    total = above.abs().sum(-1, keepdim=True)
    return torch.relu(above) / total @ v


def fire(q, k, v, w1, b1, w2, c, threshold):
    """Li et al. 2024, equation 6: a network of psi(i - j) / psi(max(L, i)), with psi(x) = log(c x + 1)."""
    i, j = positions()
    psi = lambda x: torch.log(c.abs() * x + 1)  # noqa: E731
    x = psi((i - j).abs()) / psi(torch.maximum(i, threshold.abs()))
    hidden = torch.relu(x[..., None] * w1 + b1)
    scores = scores_of(q, k) + torch.einsum("ijm,hm->hij", hidden, w2)
    return scores.masked_fill(j > i, float("-inf")).softmax(-1) @ v


# Shapes of captured tensors; numbers are what they are about.
PUBLISHED = {
    hstu: {"bias": (H, S)},
    relu: {},
    softpick: {},
    fire: {"w1": (32,), "b1": (32,), "w2": (H, 32), "c": 0.3, "threshold": 8.0},
}


def made(generator, what):
    """Random numbers of a shape, or a number and random ones beside it."""
    if isinstance(what, float):
        return torch.full((1,), what, dtype=torch.float64) + torch.rand(1, generator=generator, dtype=torch.float64) / 8
    return torch.randn(what, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda function: function.__name__)
def test_a_spec_computes_what_was_published(published):
    generator = torch.Generator().manual_seed(3)
    names, shapes = zip(*{"q": (B, H, S, D), "k": (B, H, S, D), "v": (B, H, S, D), **PUBLISHED[published]}.items())
    inputs = [made(generator, shape).float().double().requires_grad_() for shape in shapes]
    cotangent = made(generator, (B, H, S, D))
    spec = attn.compile(SPECS / f"{published.__name__}.attn", layout="bhsd", Hq=H, Hkv=H)
    # Captured tensors are of the spec's type, q, k and v of any.
    bound = {name: each.float() for name, each in zip(names[3:], inputs[3:])}
    found = spec(*inputs[:3], **bound)
    o = found if torch.is_tensor(found) else found[0]
    expected = published(*inputs)
    torch.testing.assert_close(o, expected)
    gradients = torch.autograd.grad(o, inputs, cotangent)
    for name, ours, theirs in zip(names, gradients, torch.autograd.grad(expected, inputs, cotangent)):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")
