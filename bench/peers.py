"""What PyTorch's attentions take on the GPU at hand: SDPA by its cuDNN back end, and FlexAttention.

    python3 bench/peers.py [--heads-kv N] [--json FILE] [ROW...]

Prints device times in ms, median of 30, bf16, b 4, hq 32, s 4096, d 128, timed as `attnc bench` times
its plans: L2 flushed, then a pause on the device that hides the host's time.
"""
import argparse
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

BATCH, HEADS, ROWS, DEPTH = 4, 32, 4096, 128
CLOCK = 1_980_000_000  # Hz, at most
PAUSE = int(0.002 * CLOCK)


def softcap(score, _b, _h, _q, _k):
    return 50 * torch.tanh(score / 50)


def causal(_b, _h, q, k):
    return q >= k


def window(_b, _h, q, k):
    return (q >= k) & (q - k < 256)


# name: score modification, mask, and whether SDPA can (None: it cannot; else is_causal)
ROWS_OF = {
    "noop": (None, None, False),
    "causal": (None, causal, True),
    "softcap": (softcap, None, None),
    "softcap_causal": (softcap, causal, None),
    "window256": (None, window, None),
}


def milliseconds(call, runs=30, warmup=5):
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    samples = []
    for i in range(warmup + runs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        torch.cuda._sleep(PAUSE)
        begin.record()
        call()
        end.record()
        end.synchronize()
        if i >= warmup:
            samples.append(begin.elapsed_time(end))
    return statistics.median(samples)


def both(attention, q, k, v, cotangent):
    """Forward and backward of o = attention(q, k, v)."""
    forward = milliseconds(lambda: attention(q, k, v))
    o = attention(q, k, v)
    inputs = (q, k, v)
    backward = milliseconds(
        lambda: torch.autograd.grad(o, inputs, cotangent, retain_graph=True))
    return {"forward": forward, "backward": backward}


def by_sdpa(is_causal, heads_kv):
    def attention(q, k, v):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal,
                                                  enable_gqa=heads_kv != HEADS)
    return attention


def by_flex(score, mask, heads_kv):
    compiled = torch.compile(flex_attention, dynamic=False)
    blocks = create_block_mask(mask, None, None, ROWS, ROWS, device="cuda") if mask else None
    return lambda q, k, v: compiled(q, k, v, score_mod=score, block_mask=blocks,
                                    enable_gqa=heads_kv != HEADS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*", default=list(ROWS_OF))
    parser.add_argument("--heads-kv", type=int, default=HEADS)
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.manual_seed(0)

    def tensor(heads):
        return torch.randn(BATCH, heads, ROWS, DEPTH, dtype=torch.bfloat16, device="cuda",
                           requires_grad=True)

    q, k, v = tensor(HEADS), tensor(options.heads_kv), tensor(options.heads_kv)
    cotangent = torch.randn_like(q)
    results = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    for row in options.rows:
        score, mask, is_causal = ROWS_OF[row]
        result = results[row] = {}
        if is_causal is not None:
            result["sdpa_cudnn"] = both(by_sdpa(is_causal, options.heads_kv), q, k, v, cotangent)
        result["flex"] = both(by_flex(score, mask, options.heads_kv), q, k, v, cotangent)
        for peer, times in result.items():
            print(f"{row:16} {peer:12} forward {times['forward']:.4f}  "
                  f"backward {times['backward']:.4f}", flush=True)
        torch._dynamo.reset()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
