#!/usr/bin/env python3
"""Host time of a call of attn.torch beside PyTorch's own attentions, in one run on the local GPU.

    PYTHONPATH=python bench/python_host.py [--out FILE.json]

Each row is the median time, in microseconds, that the host needs to enqueue one call: 50 calls between two
synchronisations, so that the queue never fills, 40 times, the ways taken in turn. The attention is causal,
b 1, 8 heads, 128 rows, d 64, bf16: its kernel is shorter than a call. Over pages it is a decode of 8 sequences. Also
prints the time from an imported PyTorch to the first result.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import attn
import attn.torch

CALLS, ROUNDS = 50, 40
SHAPE = (1, 8, 128, 64)
SPEC = "attention causal { dims B, Hq, Sq, D; mask q_idx >= kv_idx; }"

FIRST = {
    "attnc, a plan at hand": """
f = attn.load(sys.argv[1])
o = f(q, k, v)
""",
    "attnc, from the cache": """
f = attn.compile(SPEC)
o = f(q, k, v)
""",
    "attnc, from nothing": """
os.environ["ATTN_CACHE_DIR"] = tempfile.mkdtemp()
f = attn.compile(SPEC)
o = f(q, k, v)
""",
    "FlexAttention, from its cache": """
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
m = create_block_mask(causal, None, None, 128, 128)
o = torch.compile(flex_attention)(q, k, v, block_mask=m)
""",
    "FlexAttention, from nothing": """
os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
m = create_block_mask(causal, None, None, 128, 128)
o = torch.compile(flex_attention)(q, k, v, block_mask=m)
""",
}
FRAME = """
import os, sys, tempfile, time, torch
def causal(b, h, q_idx, kv_idx): return q_idx >= kv_idx
SPEC = "attention causal { dims B, Hq, Sq, D; mask q_idx >= kv_idx; }"
q, k, v = (torch.randn(1, 8, 128, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
torch.cuda.synchronize()
begin = time.perf_counter()
import attn, attn.torch
"""


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def ways():
    """Functions of q, k and v by name."""
    f = attn.compile(SPEC)
    mask = create_block_mask(causal, None, None, SHAPE[2], SHAPE[2])
    compiled_flex = torch.compile(flex_attention)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return {
        "attn.torch": f,
        "attn.torch.flex_attention": lambda q, k, v: attn.torch.flex_attention(q, k, v, mask_mod=causal),
        "attn.torch, torch.compile": torch.compile(lambda q, k, v: f(q, k, v), fullgraph=True),
        "SDPA": lambda q, k, v: sdpa(q, k, v, is_causal=True),
        "FlexAttention, torch.compile": lambda q, k, v: compiled_flex(q, k, v, block_mask=mask),
    }


def paged():
    """Calls of a decode of 8 sequences over pages, with a schedule of the caller and without, with the same q and with
    another one at each call, and what makes a schedule."""
    q = torch.randn(8, 8, 64, device="cuda", dtype=torch.bfloat16)
    k_cache, v_cache = torch.randn(2, 130, 16, 8, 64, device="cuda", dtype=torch.bfloat16)
    lengths = torch.full((8,), 200, device="cuda", dtype=torch.int32)
    table = torch.arange(128, device="cuda", dtype=torch.int32).view(8, 16)
    bounds = {"max_seqlen_q": 1, "max_seqlen_k": 200}
    schedule = attn.torch.Schedule(q, k_cache, v_cache, table, **bounds)
    schedule.build(None, lengths)
    out = torch.empty_like(q)
    others = itertools.cycle(list(torch.empty(200, *q.shape, device="cuda", dtype=q.dtype)))

    def run(q, schedule):
        return attn.torch.varlen_attention(q, k_cache, v_cache, seqused_k=lengths, block_table=table, max_seqlen_q=1,
                                           max_seqlen_k=200, out=out, schedule=schedule)

    return {
        "varlen_attention, a schedule": lambda *_: run(q, schedule),
        "the same, q moves": lambda *_: run(next(others), schedule),
        "varlen_attention": lambda *_: run(q, None),
        "Schedule.build": lambda *_: schedule.build(None, lengths),
    }


def captured(f, q, k, v):
    """Replays of a CUDA graph of one call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        f(q, k, v)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f(q, k, v)
    return lambda *_: graph.replay()


def timed(f, *tensors):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        f(*tensors)
    end = time.perf_counter()
    torch.cuda.synchronize()
    return (end - begin) / CALLS * 1e6


def measure(functions, tensors):
    """Median microseconds of each, taken in turn."""
    times = {name: [] for name in functions}
    for name, f in functions.items():
        for _ in range(2):
            timed(f, *tensors)
    for _ in range(ROUNDS):
        for name, f in functions.items():
            times[name].append(timed(f, *tensors))
    return {name: round(statistics.median(values), 2) for name, values in times.items()}


def trained(f, d_o):
    def run(q, k, v):
        f(q, k, v).backward(d_o)
        q.grad = k.grad = v.grad = None

    return run


def first_results():
    """Yields the name of a way and the seconds until its first result, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "causal.attnplan")
        sizes = {"B": SHAPE[0], "Hq": SHAPE[1], "Sq": SHAPE[2], "D": SHAPE[3]}
        spec = SPEC.replace("D;", "D; layout bhsd;")
        attn.compile(spec, target="native", **sizes).save(plan)
        for name, body in FIRST.items():
            program = FRAME + body + "\ntorch.cuda.synchronize()\nprint(time.perf_counter() - begin)"
            seconds = []
            for _ in range(2):  # the first fills a cache
                done = subprocess.run([sys.executable, "-c", program, plan], capture_output=True, text=True)
                seconds.append(float(done.stdout) if done.returncode == 0 else None)
                if done.returncode != 0:
                    print(name, done.stderr[-600:])
            yield name, seconds[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="JSON file to write")
    arguments = parser.parse_args()
    generator = torch.Generator("cuda").manual_seed(0)
    tensors = [
        torch.randn(SHAPE, generator=generator, device="cuda").to(torch.bfloat16) for _ in range(3)
    ]
    functions = ways()
    with torch.no_grad():
        graphs = {
            "attn.torch, CUDA graph": captured(functions["attn.torch"], *tensors),
            "SDPA, CUDA graph": captured(functions["SDPA"], *tensors),
        }
        forward = measure({**functions, **graphs, **paged()}, tensors)
    leaves = [tensor.requires_grad_() for tensor in tensors]
    recorded = measure(functions, leaves)
    d_o = torch.randn_like(tensors[0])
    training = measure({name: trained(f, d_o) for name, f in functions.items()}, leaves)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {sys.version.split()[0]}")
    print(f"{'us a call':32} {'inference':>10} {'recorded':>10} {'fwd + bwd':>10}")
    for name, time_of in forward.items():
        others = [f"{table[name]:10.1f}" if name in table else " " * 10 for table in (recorded, training)]
        print(f"{name:32} {time_of:10.1f} {' '.join(others)}", flush=True)
    first = {}
    for name, seconds in first_results():
        first[name] = seconds
        print(
            f"first result: {name:32}", "failed" if seconds is None else f"{seconds:8.3f} s", flush=True
        )
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(
                {"forward": forward, "recorded": recorded, "training": training, "first": first},
                file,
                indent=1,
            )


if __name__ == "__main__":
    main()
