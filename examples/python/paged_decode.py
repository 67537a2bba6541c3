"""Decoding with a paged cache: one new token for each sequence and step, checked against dense attention.

    PYTHONPATH=python python examples/python/paged_decode.py [--steps 160]

Keys and values live in pools of pages; each sequence lists its pages in a page table and takes another from
a free list when its last one is full, as inference engines do. On a GPU one plan serves all steps.
"""

import argparse
import math

import torch

import attn
import attn.torch

PAGE = 64
SPEC = f"""
attention paged_decode {{
  dims    B, Hq = 8, Hkv = 2, Sq = 1, Skv, D = 64;
  layout  paged(page = {PAGE});
  align   bottom_right;
  lengths kv;
  mask    q_idx >= kv_idx;
}}
"""


class Cache:
    """Pools [pages, Hkv, page, D] of keys and values, the pages of each sequence, and their lengths."""

    def __init__(self, batch: int, longest: int, heads: int, depth: int, **options):
        pages = batch * math.ceil(longest / PAGE)
        self.keys, self.values = (torch.zeros(pages, heads, PAGE, depth, **options) for _ in range(2))
        self.free = torch.randperm(pages).tolist()
        self.table = torch.zeros(batch, pages // batch, dtype=torch.int32, device=options["device"])
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=options["device"])

    def append(self, k: torch.Tensor, v: torch.Tensor, step: int) -> None:
        """The keys and values [B, Hkv, D] of one token for each sequence, which all have `step` tokens."""
        if step % PAGE == 0:
            taken = [self.free.pop() for _ in range(len(self.table))]
            self.table[:, step // PAGE] = torch.tensor(taken, device=self.table.device)
        page = self.table[:, step // PAGE].long()
        self.keys[page, :, step % PAGE], self.values[page, :, step % PAGE] = k, v
        self.lengths += 1

    def dense(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values [B, Hkv, step, D] in float64."""
        pools = (pool[self.table.long()].transpose(1, 2).flatten(2, 3) for pool in (self.keys, self.values))
        return tuple(pool[:, :, :step].double() for pool in pools)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    options = {"device": arguments.device, "dtype": torch.bfloat16}
    batch, heads, key_heads, depth = arguments.batch, 8, 2, 64
    decode = attn.compile(SPEC, B=batch, Skv=arguments.steps)
    cache = Cache(batch, arguments.steps, key_heads, depth, **options)
    worst = 0.0
    for step in range(arguments.steps):
        q = torch.randn(batch, heads, 1, depth, **options)
        cache.append(*torch.randn(2, batch, key_heads, depth, **options), step)
        o = decode(q, cache.keys, cache.values, page_table=cache.table, lengths_kv=cache.lengths)
        keys, values = (x.repeat_interleave(heads // key_heads, 1) for x in cache.dense(step + 1))
        weights = (q.double() @ keys.mT / math.sqrt(depth)).softmax(-1)
        worst = max(worst, (o.double() - weights @ values).abs().max().item())
    print(f"{arguments.steps} steps: largest difference from dense attention {worst:.1e}")
    assert worst < 2e-2


if __name__ == "__main__":
    main()
