"""Training through lse on a GPU: two attentions that are merged learn as one over all keys does."""

import pytest

torch = pytest.importorskip("torch")

import attn.torch  # noqa: E402

STEPS = 100
HEADS, KV_HEADS, ROWS, WIDTH, DEPTH = 8, 2, 512, 256, 64


def after_the_cut(cut):
    """Masks of the keys before the cut and from it on: causal, so the first rows see none of the second."""
    return (lambda b, h, i, j: i >= j), (lambda b, h, i, j: i >= j + cut)


def attention(q, k, v, mask):
    return attn.torch.flex_attention(q, k, v, mask_mod=mask, enable_gqa=True, return_lse=True)


def whole(q, k, v):
    return attention(q, k, v, after_the_cut(0)[0])[0]


def merged(q, k, v):
    cut = k.shape[2] * 3 // 8
    masks = after_the_cut(cut)
    parts = [attention(q, k[:, :, at].contiguous(), v[:, :, at].contiguous(), mask)
             for at, mask in zip((slice(cut), slice(cut, None)), masks)]
    every = torch.stack([lse for _, lse in parts])
    shares = (every - every.logsumexp(0)).exp()
    return sum(share[..., None] * o.float() for share, (o, _) in zip(shares, parts))


def losses(attend, device, rows=ROWS, steps=STEPS):
    """Losses of each step of a small model's training, from the same weights on the same data."""
    random = torch.Generator(device).manual_seed(5)

    def tensor(*sizes):
        return torch.randn(*sizes, generator=random, device=device)

    heads = HEADS + 2 * KV_HEADS
    weights = [tensor(WIDTH, heads * DEPTH) * WIDTH**-0.5, tensor(HEADS * DEPTH, WIDTH) * (HEADS * DEPTH) ** -0.5]
    for each in weights:
        each.requires_grad_()
    optimizer = torch.optim.Adam(weights, lr=1e-3)
    x = tensor(2, rows, WIDTH)
    wanted = tensor(2, rows, WIDTH).cumsum(1) / torch.arange(1, rows + 1, device=device)[:, None]
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        made = (x @ weights[0]).view(2, rows, heads, DEPTH).transpose(1, 2).to(torch.float16)
        o = attend(*made.split([HEADS, KV_HEADS, KV_HEADS], 1))
        loss = (o.float().transpose(1, 2).flatten(2) @ weights[1] - wanted).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found).cpu()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_merged_attentions_train_as_one():
    one, two = losses(whole, "cuda"), losses(merged, "cuda")
    assert one.isfinite().all() and one[-1] < one[0] / 2, (one[0], one[-1])
    worst = ((one - two).abs() / one).max().item()
    print(f"losses {one[0]:.4f} to {one[-1]:.4f}, merged {two[-1]:.4f}: at most {worst:.1e} apart")
    assert (one - two).abs().max() < 1e-4
    assert not torch.equal(one, two), "the same attention twice"
