#!/usr/bin/env python3
"""Host time of a repeated call of attn.torch.flex_attention beside PyTorch's own attentions, in one run on the local GPU.

    PYTHONPATH=python bench/flex_host.py [--out FILE.json]

Each row is the median time, in microseconds, that the host needs to enqueue one call, as in bench/python_host.py: 50
calls between two synchronisations, 40 times, the ways taken in turn. Attentions are of b 1, 8 heads, 128 rows, d 64,
bf16, whose kernels are shorter than a call. "Captured bias" adds a tensor [8, 128, 128] to the scores, which SDPA takes
as its mask; a kept attention is what attn.compile returned.
"""

import argparse
import json
import sys

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import attn
import attn.torch
from python_host import SHAPE, causal, measure, trained

HEADS, ROWS = SHAPE[1], SHAPE[2]
SIZES = {"B": SHAPE[0], "Hq": HEADS, "Sq": ROWS, "D": SHAPE[3]}


def attentions():
    """For each attention, FlexAttention's arguments, SDPA's, and what compiles a kept one."""
    bias = torch.randn(HEADS, ROWS, ROWS, device="cuda", dtype=torch.bfloat16)

    def biased(score, b, h, q_idx, kv_idx):
        return score + bias[h, q_idx, kv_idx]

    block_mask = create_block_mask(causal, None, None, ROWS, ROWS)
    return {
        "no mask": ({}, {}, lambda: attn.compile("attention full { dims B, Hq, Sq, D; }")),
        "causal": ({"block_mask": block_mask}, {"is_causal": True}, lambda: attn.compile(mask_mod=causal, **SIZES)),
        "captured bias": ({"score_mod": biased}, {"attn_mask": bias},
                          lambda: attn.compile(score_mod=biased, **SIZES)),
    }


def ways(flex, sdpa, kept):
    """Functions of q, k and v by name."""
    f = kept()
    compiled_flex = torch.compile(flex_attention)
    attend = torch.nn.functional.scaled_dot_product_attention
    return {
        "attn.torch.flex_attention": lambda q, k, v: attn.torch.flex_attention(q, k, v, **flex),
        "a kept attention": f,
        "SDPA": lambda q, k, v: attend(q, k, v, **sdpa),
        "FlexAttention, torch.compile": lambda q, k, v: compiled_flex(q, k, v, **flex),
        "attn.torch.flex_attention, torch.compile":
            torch.compile(lambda q, k, v: attn.torch.flex_attention(q, k, v, **flex), fullgraph=True),
        "SDPA, torch.compile": torch.compile(lambda q, k, v: attend(q, k, v, **sdpa), fullgraph=True),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="JSON file to write")
    arguments = parser.parse_args()
    generator = torch.Generator("cuda").manual_seed(0)
    tensors = [torch.randn(SHAPE, generator=generator, device="cuda").to(torch.bfloat16) for _ in range(3)]
    d_o = torch.randn_like(tensors[0])
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {sys.version.split()[0]}")
    print(f"{'us a call':58} {'inference':>10} {'recorded':>10} {'fwd + bwd':>10}")
    found = {}
    for name, how in attentions().items():
        functions = ways(*how)
        leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
        with torch.no_grad():
            forward = measure(functions, tensors)
        recorded = measure(functions, leaves)
        training = measure({way: trained(f, d_o) for way, f in functions.items()}, leaves)
        found[name] = {way: [forward[way], recorded[way], training[way]] for way in functions}
        for way, times in found[name].items():
            print(f"{name + ': ' + way:58} " + " ".join(f"{each:10.1f}" for each in times), flush=True)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
