"""Trees of drafts at the end of keys in pages: a row sees the context, and the nodes above its own, whose bits are
packed into words. Beside dense attention of each sequence."""

import math

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402

NODES, PAGES = 40, 24
SPEC = f"""attention tree {{
  dims B = 3, Hq = 4, Hkv = 2, Sq = {NODES}, Skv = 128, D = 16;
  layout paged(page = 16, pages = {PAGES});
  align bottom_right;
  lengths kv;
  tensor ancestors: i32[B, Sq, (Sq + 31) // 32];
  let node = kv_idx - (q_idx - q_raw);
  let place = clamp(node, 0, Sq - 1);
  mask node < 0 || ancestors[b, q_raw, place // 32] >> place % 32 & 1 == 1;
  outputs o, lse;
}}"""


def seen_by(parents):
    """Who sees whom of a tree [nodes, nodes]: itself and what is above it; the root's parent is -1."""
    seen = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):  # parents come first
        if parent >= 0:
            seen[node] |= seen[parent]
    return seen


def packed(seen):
    """Words [.., ceil(nodes / 32)] of 32 bits, the first node's the lowest."""
    nodes = seen.shape[-1]
    bits = torch.nn.functional.pad(seen, (0, -nodes % 32)).unflatten(-1, (-1, 32)).long()
    words = (bits << torch.arange(32, device=seen.device)).sum(-1)
    return torch.where(words < 2**31, words, words - 2**32).int()


@pytest.mark.parametrize("device, dtype, within", [
    ("cpu", torch.float64, 1e-12),
    pytest.param("cuda", torch.bfloat16, 2e-2, marks=pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs a GPU"))])
def test_trees_over_pages(device, dtype, within):
    choose = torch.Generator().manual_seed(3)
    trees = torch.stack([
        seen_by([-1, *(int(torch.randint(0, node, (), generator=choose)) for node in range(1, NODES))])
        for _ in range(3)])
    q = torch.randn(3, 4, NODES, 16, generator=choose).to(device, dtype)
    k, v = torch.randn(2, PAGES, 2, 16, 16, generator=choose).to(device, dtype)
    table = torch.randperm(PAGES, generator=choose).reshape(3, 8)
    lengths = torch.tensor([128, 40, 77])
    o, lse = attn.compile(SPEC)(q, k, v, page_table=table.int().to(device), lengths_kv=lengths.int().to(device),
                                ancestors=packed(trees).to(device))
    for b, keys in enumerate(lengths.tolist()):
        k_b, v_b = (x[table[b].to(device)].transpose(0, 1).flatten(1, 2)[:, :keys].repeat_interleave(2, 0).double()
                    for x in (k, v))
        seen = torch.cat([torch.ones(NODES, keys - NODES, dtype=torch.bool), trees[b]], -1).to(device)
        scores = (q[b].double() @ k_b.mT / math.sqrt(16)).masked_fill(~seen, -math.inf)
        torch.testing.assert_close(o[b].double(), scores.softmax(-1) @ v_b, atol=within, rtol=within)
        torch.testing.assert_close(lse[b].double(), scores.logsumexp(-1), atol=within, rtol=within)
