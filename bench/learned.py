#!/usr/bin/env python3
"""Times attentions with learned tensors (bench/learned), ours and FlexAttention's: the forward, and the backward
with the memory that it needs beside its tensors.

    python3 bench/learned.py [--attnc build/attnc] [--size 4096 ...] [--rows NAME ...] [--plans FOLDER]
        [--compile-only] [--runs 9] [--no-peer] [--out FILE.json]

Needs a GPU, except with --compile-only, which writes the plans to FOLDER. The learned bias has one head at
65,536 keys, and 16 below. FlexAttention has no sinks; there, o is scaled in PyTorch by lse.
"""
import argparse
import concurrent.futures
import functools
import os
import pathlib
import sys
import tempfile

import peers
import remote
import results
from compare_peers import attnc_json, first_line

FOLDER = pathlib.Path(__file__).resolve().parent / "learned"
ROWS = [path.stem for path in sorted(FOLDER.glob("*.attn"))]
HEADS, DEPTH, REACH, HIDDEN = 16, 64, 255, 32
FIRST_CALL = 300  # seconds that the peer's first calls may take, with their compilation
# FlexAttention's own choice of tiles needs more shared memory than there is for some learned tensors; then these are
# tried in order.
KERNEL_OPTIONS = (None, {"fwd_num_stages": 2, "bwd_num_stages": 2}, {"fwd_num_stages": 1, "bwd_num_stages": 1},
                  {"fwd_num_stages": 1, "fwd_BLOCK_M": 64, "fwd_BLOCK_N": 64, "bwd_num_stages": 1,
                   "bwd_BLOCK_M1": 32, "bwd_BLOCK_N1": 64, "bwd_BLOCK_M2": 64, "bwd_BLOCK_N2": 32})


def heads_of(name, size):
    return 1 if name == "bias" and size > 32768 else HEADS


def learned_of(name, heads, size):
    """The shapes of a row's learned tensors."""
    return {"slope": [(heads,)], "bias": [(heads, size, size)], "relative": [(heads, 2 * REACH + 1)],
            "t5_buckets": [(32, heads)], "sink": [(heads,)],
            "fire": [(HIDDEN,), (HIDDEN,), (heads, HIDDEN), (1,), (1,)]}[name]


def t5_bucket(q_idx, kv_idx):
    """T5's bucket of an encoder: steps at the integers of the published formula."""
    far = (kv_idx - q_idx).abs()
    half = far.clamp(max=8)
    for step in (12, 16, 23, 32, 46, 64, 91):
        half = half + (far >= step).int()
    return half + (kv_idx > q_idx).int() * 16


def fire(w1, b1, w2, c, threshold):
    """FIRE's bias: a network of one hidden layer, of the distance relative to the furthest."""

    def mod(score, b, h, q, kv):
        zero = q - q
        far = q.maximum(threshold[zero].abs())
        x = (c[zero].abs() * (q - kv).abs() + 1).log() / (c[zero].abs() * far + 1).log()
        for m in range(HIDDEN):
            score = score + w2[h, zero + m] * (w1[zero + m] * x + b1[zero + m]).relu()
        return score

    return mod


def score_mod(name, learned):
    first = learned[0]
    return {"slope": lambda score, b, h, q, kv: score + first[h] * (kv - q),
            "bias": lambda score, b, h, q, kv: score + first[h, q, kv],
            "relative": lambda score, b, h, q, kv: score + first[h, (q - kv).clamp(-REACH, REACH) + REACH],
            "t5_buckets": lambda score, b, h, q, kv: score + first[t5_bucket(q, kv), h],
            "sink": None,
            "fire": fire(*learned) if name == "fire" else None}[name]


class Flex:
    """FlexAttention's part of one row, in a process of its own."""

    def __init__(self, name, size):
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        heads = heads_of(name, size)
        self.inputs = peers.Inputs((1, heads, heads, size, DEPTH))
        self.learned = [torch.rand(shape, device="cuda").mul_(0.1).requires_grad_()
                        for shape in learned_of(name, heads, size)]
        score, blocks = score_mod(name, self.learned), None
        if name in ("sink", "fire"):
            blocks = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, size, size, device="cuda")
        self.memory = self.first_that_runs(flex_attention, score, blocks)

    def forward(self, compiled, score, blocks, options):
        import torch

        q, k, v = self.inputs.qkv
        if score is not None:
            return compiled(q, k, v, score_mod=score, block_mask=blocks, kernel_options=options)
        o, lse = compiled(q, k, v, block_mask=blocks, return_lse=True, kernel_options=options)
        return o * torch.sigmoid(lse - self.learned[0][None, :, None])[..., None].to(o.dtype)

    def first_that_runs(self, flex_attention, score, blocks):
        """The memory of the backward with the first of KERNEL_OPTIONS that runs."""
        import torch

        for options in KERNEL_OPTIONS:
            try:
                torch._dynamo.reset()
                compiled = torch.compile(flex_attention, dynamic=False)
                self.call = functools.partial(self.forward, compiled, score, blocks, options)
                self.o = self.call()
                self.options = options
                return self.backward_memory()
            except Exception:
                if options is KERNEL_OPTIONS[-1]:
                    raise

    def backward(self):
        import torch

        return torch.autograd.grad(self.o, (*self.inputs.qkv, *self.learned), self.inputs.cotangent,
                                   retain_graph=True)

    def backward_memory(self):
        """Bytes that a backward allocates beside the gradients."""
        import torch

        self.backward()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        gradients = self.backward()
        peak = torch.cuda.max_memory_allocated() - before
        return max(0, peak - sum(each.nbytes for each in gradients))

    def ready(self):
        return True

    def measure(self, runs):
        return {"forward_ms": peers.milliseconds(self.call, runs),
                "ms": peers.milliseconds(self.backward, runs), "memory": self.memory,
                "kernel_options": self.options}


def ours(options, plan):
    """Our times, and the workspace of the backward's plan."""
    try:
        timed = attnc_json(options, "bench", plan, "--device-only", "--direction", "both", "--iterations", options.runs)
        backward = attnc_json(options, "inspect", plan)["plans"][1]
    except RuntimeError as error:
        return {"error": first_line(error)}
    forward_ms, ms = (row["device"]["median_ms"] for row in timed["rows"])
    return {"forward_ms": forward_ms, "ms": ms, "memory": backward["manifest"]["workspace_bytes"]}


class Theirs:
    """FlexAttention's part of a row."""

    def __init__(self, name, size):
        self.process = remote.Remote(Flex, name, size)

    def prepare(self):
        """Makes the first calls, in which it compiles. Returns self."""
        try:
            self.process.call("ready", limit=FIRST_CALL)
        except RuntimeError:
            pass  # measure() says it
        return self

    def measure(self, runs):
        try:
            return self.process.call("measure", runs, limit=FIRST_CALL)
        except RuntimeError as error:
            return {"error": first_line(error)}
        finally:
            self.process.stop()


def compiled(options, name, size):
    """The plan of a row, compiled if it is not there, or why there is none."""
    plan = options.plans / f"{name}_{size}.attnplan"
    if plan.exists():
        return plan, None
    heads = heads_of(name, size)
    sizes = [f"Sq={size}", f"Hq={heads}", f"Hkv={heads}"]
    bindings = (word for each in (f"Sq={size}", f"Hq={heads}", f"Hkv={heads}") for word in ("--bind", each))
    try:
        attnc_json(options, "compile", FOLDER / f"{name}.attn", "-o", plan, "--direction", "both", "--target",
                   options.target, *bindings)
    except RuntimeError as error:
        return plan, first_line(error)
    return plan, None


def said(found):
    options = f", {found['kernel_options']}" if found.get("kernel_options") else ""
    times = found.get("error") or f"{found['forward_ms']:.3f} and {found['ms']:.3f} ms"
    return times if "error" in found else f"{times}, {found['memory'] / 1e6:.1f} MB{options}"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attnc", default="build/attnc", type=pathlib.Path)
    parser.add_argument("--size", nargs="+", type=int, default=[4096, 16384, 65536], help="keys")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS, metavar="NAME")
    parser.add_argument("--plans", type=pathlib.Path, metavar="FOLDER", help="of compiled plans")
    parser.add_argument("--target", default="native", help="target of attnc compile")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="rows that the peer compiles at once")
    parser.add_argument("--runs", type=int, default=9, help="samples per time")
    parser.add_argument("--no-peer", action="store_true", help="without FlexAttention")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.json")
    options = parser.parse_args()
    if options.compile_only and not options.plans:
        parser.error("--compile-only needs --plans")
    return options


def measure(options, name, size):
    row = {"row": name, "size": size, "heads": heads_of(name, size)}
    plan, error = compiled(options, name, size)
    if options.compile_only:
        print(f"{name:12} {size:6}  {error or plan}", flush=True)
        return row
    row["ours"] = {"error": error} if error else ours(options, plan)
    print(f"{name:12} {size:6}  ours {said(row['ours'])}", flush=True)
    return row


def measure_peer(options, row, peer):
    row["flexattention"] = peer.measure(options.runs)
    print(f"{row['row']:12} {row['size']:6}  flexattention {said(row['flexattention'])}", flush=True)


def prepared(options, rows):
    """FlexAttention's part of each row. All compile at the same time; then nothing runs beside what is timed."""
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        return list(pool.map(lambda row: Theirs(*row).prepare(), rows))


def main():
    options = parse()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # --jobs processes compile already
    rows = [(name, size) for name in options.rows for size in options.size]
    with tempfile.TemporaryDirectory() as temporary:
        options.plans = options.plans or pathlib.Path(temporary)
        options.plans.mkdir(parents=True, exist_ok=True)
        measured = [measure(options, *row) for row in rows]
    if not (options.no_peer or options.compile_only):
        for row, peer in zip(measured, prepared(options, rows)):
            measure_peer(options, row, peer)
    if options.out and not options.compile_only:
        results.save(options.out, {"rows": measured})
    return 0


if __name__ == "__main__":
    sys.exit(main())
