#!/usr/bin/env python3
"""Plans that models need to be served over a paged cache: how long they take to compile and to load, and their sizes.

    PYTHONPATH=python bench/serving_plans.py [--folder FOLDER] [--target h200] [--attnc build/attnc]

A model has a plan for decodes and one for everything else (prefills, mixed batches), for each kind of its layers.
Each is compiled by `attnc compile --engine native`, alone, without the cache of plans. On a machine with a GPU each is
loaded, five times, in processes that have loaded another one before; how long that first one takes, with the driver's
context, is the last line. The memory is that of a schedule without options. Plans stay in FOLDER. Prints a table in
Markdown.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from attn import plan
from attn.torch.varlen_spec import Key, spec_of

LOADS = 5
SEQUENCES, ROWS, KEYS = 256, 8192, 131072  # the most of a batch, and of a sequence
PLAIN = dict(sequences=SEQUENCES, keys=KEYS, dtype="bf16", page=16, scale=None, left=False, right=False, softcap=0.0,
             sinks="", slopes="", lse=False)
LATENT = dict(heads=128, heads_kv=1, depth=576, depth_v=512, page=64, scale=192**-0.5)
LLAMA_8B, LLAMA_70B = dict(heads=32, heads_kv=8, depth=128), dict(heads=64, heads_kv=8, depth=128)
GEMMA = dict(heads=32, heads_kv=16, depth=128, scale=168**-0.5)
GPT_OSS = dict(heads=64, heads_kv=8, depth=64, sinks="bf16")


class Row(NamedTuple):
    """A kind of layers of a model."""

    model: str
    layers: str
    key: dict


ROWS_OF_TABLE = [
    Row("Llama 3 8B", "all", LLAMA_8B),
    Row("Llama 3 70B", "all", LLAMA_70B),
    Row("Gemma 3 27B", "global", GEMMA),
    Row("Gemma 3 27B", "window of 1,024", {**GEMMA, "left": True}),
    Row("gpt-oss", "full", GPT_OSS),
    Row("gpt-oss", "window of 128", {**GPT_OSS, "left": True}),
    Row("DeepSeek-V3, absorbed", "all", LATENT),
]

# Loads the first plan, then the second: milliseconds of both, and the MB that a schedule of the second takes.
LOADER = """
import sys, time
try:
    import torch
except ImportError:
    torch = None
from attn import _libattn
times = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        contents = file.read()
    start = time.perf_counter()
    executable = _libattn.Executable(_libattn.runtime(0), _libattn.PlanFile(contents), 0)
    times.append((time.perf_counter() - start) * 1e3)
taken = float("nan")
if torch is not None:
    free = torch.cuda.mem_get_info()[0]
    schedule = _libattn.Schedule(executable)
    taken = (free - torch.cuda.mem_get_info()[0]) / 1e6
print(*times, taken, flush=True)
"""


def key_of(row, decodes):
    sizes = {**PLAIN, "depth_v": row.key["depth"], **row.key}
    return Key(**sizes, rows=1 if decodes else ROWS, causal=not decodes)


def compiled(row, decodes, options):
    """The plan file, and the seconds that attnc took."""
    name = "_".join((row.model, row.layers, "decode" if decodes else "mixed"))
    spec = options.folder / f"{name.replace(' ', '_').replace(',', '')}.attn"
    spec.write_text(spec_of(key_of(row, decodes)), encoding="utf-8")
    file = spec.with_suffix(".attnplan")
    start = time.perf_counter()
    subprocess.run([options.attnc, "compile", spec, "--target", options.target, "--engine", "native", "-o", file],
                   check=True, capture_output=True)
    return file, time.perf_counter() - start


def loaded(file, other):
    """Milliseconds of the first load in a process, of one after it, and MB of a schedule: medians."""
    runs = [subprocess.run([sys.executable, "-c", LOADER, other, file], check=True, capture_output=True, text=True)
            for _ in range(LOADS)]
    return [statistics.median(column) for column in zip(*(map(float, run.stdout.split()) for run in runs))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.mkdtemp()))
    parser.add_argument("--target", default="h200")
    parser.add_argument("--attnc", default=os.environ.get("ATTN_ATTNC", "build/attnc"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    made = [(row, *(compiled(row, decodes, options) for decodes in (True, False))) for row in ROWS_OF_TABLE]
    gpu = plan.local_gpu() is not None
    print("| model | layers | plans | compile: decode, mixed | bytes | load, ms | schedule, MB |", flush=True)
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    files = [made[-1][1][0], *(file for _, *plans in made for file, _ in plans)]
    first = []
    for row, *plans in made:
        columns = [f"{seconds:.1f} s" for _, seconds in plans], [f"{file.stat().st_size:,}" for file, _ in plans]
        times, memory = ["-"], ["-"]
        if gpu:
            measured = [loaded(file, next(other for other in files if other != file)) for file, _ in plans]
            first += [before for before, _, _ in measured]
            times = [f"{after:.1f}" for _, after, _ in measured]
            memory = [f"{taken:.0f}" for *_, taken in measured]
        joined = (", ".join(column) for column in (*columns, times, memory))
        print("|", " | ".join((row.model, row.layers, str(len(plans)), *joined)), "|", flush=True)
    if first:
        print(f"\nThe first load of a process takes {statistics.median(first):.0f} ms, with the driver's context.")


if __name__ == "__main__":
    main()
