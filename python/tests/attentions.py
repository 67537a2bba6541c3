"""Attentions of torch tensors that several tests call."""

import torch

import attn

LEARNED = """attention learned {{
  dims B, Hq, Hkv, Sq, Skv, D;
  learn slopes: f32[Hq];
  score score + slopes[h] * (kv_idx - q_idx);
  mask q_idx >= kv_idx;
  outputs {outputs};
}}
"""


def learned(outputs):
    """The text of a causal attention with a learned tensor and these outputs."""
    return LEARNED.format(outputs=outputs)


def slopes():
    return torch.tensor([0.5, 0.25, 0.125, 0.0], requires_grad=True)


def tensors(batch=2, rows=5, keys=5, dtype=torch.float64, grad="qkv"):
    """q of 4 heads, k and v of 2, the same in each call; those named in `grad` require a gradient."""
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(batch, heads, length, 16, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(
        name in grad) for name, heads, length in (("q", 4, rows), ("k", 2, keys), ("v", 2, keys))]


def traced(function, fullgraph=True):
    """The function as torch.compile traces it. Tests before this one do not count for its limit of
    compilations."""
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=fullgraph)


def in_8_bits():
    """An attention that trains in 8 bits, for `tensors`, and the scales that a call of it needs."""
    scales = {f"descale_{name}": torch.ones(1) for name in ("q", "k", "v", "do")}
    return attn.compile("fp8_training", Hq=4, Hkv=2), scales


def merge(parts):
    """o and lse of an attention over all keys, from those over some of them each: [(o, lse), ..]."""
    every = torch.stack([lse for _, lse in parts])
    lse = every.logsumexp(0)
    # Where no part sees anything, gradients of lse are NaN, which such rows ignore.
    shares = torch.where(every.isneginf(), 0, (every - lse).exp())
    return sum(share[..., None].to(o.dtype) * o for share, (o, _) in zip(shares, parts)), lse
