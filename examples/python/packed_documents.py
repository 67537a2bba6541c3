"""Documents packed into one row, with FlexAttention's functions: each attends to itself alone.

    PYTHONPATH=python python examples/python/packed_documents.py

The mask is an ordinary FlexAttention mask_mod; attnc finds from the captured document ids which blocks of
scores can be skipped. Compares with attention of each document alone, then adds dropout, which
FlexAttention lacks.
"""

import argparse

import torch

import attn.torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    length, device = arguments.length, arguments.device
    ends = [length // 5, length // 2, length]
    rows = torch.arange(length, device=device)
    document = torch.bucketize(rows, torch.tensor(ends, device=device), right=True)

    def same_document(b, h, q_idx, kv_idx):
        return (document[q_idx] == document[kv_idx]) & (q_idx >= kv_idx)

    def make():
        return torch.randn(1, 4, length, 64, device=device, dtype=torch.bfloat16, requires_grad=True)

    q, k, v = make(), make(), make()
    o = attn.torch.flex_attention(q, k, v, mask_mod=same_document)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    alone = [
        sdpa(*(x[:, :, first:last] for x in (q, k, v)), is_causal=True)
        for first, last in zip([0, *ends], ends)
    ]
    difference = (o - torch.cat(alone, 2)).abs().max().item()
    print(f"largest difference from {len(ends)} documents alone: {difference:.1e}")
    assert difference < 4e-2

    torch.manual_seed(1)
    dropped = attn.torch.flex_attention(q, k, v, mask_mod=same_document, dropout_p=0.1)
    dropped.float().square().sum().backward()
    torch.manual_seed(1)
    again = attn.torch.flex_attention(q, k, v, mask_mod=same_document, dropout_p=0.1)
    print(f"with dropout: the same again for the same seed: {torch.equal(dropped, again)}")
    assert torch.equal(dropped, again) and q.grad.isfinite().all()


if __name__ == "__main__":
    main()
