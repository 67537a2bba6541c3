#!/usr/bin/env python3
"""Plans that models need to be served over a paged cache: how long they take to compile and to load, and their sizes.

    PYTHONPATH=python bench/serving_plans.py [--folder FOLDER] [--target h200] [--attnc build/attnc]

A model has a plan for decodes and one for everything else (prefills, mixed batches), for each kind of its layers.
Each is compiled by `attnc compile --engine native`, alone, without the cache of plans. On a machine with a GPU each is
loaded, five times, in processes that have loaded another one before; how long that first one takes, with the driver's
context, is the last line. The memory is that of a schedule without options. Plans stay in FOLDER. Prints a table in
Markdown, a row as soon as it is measured: six seconds each on two cores.
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

LOADED_FIRST = Row("first", "all", {**LLAMA_8B, "sequences": 8})

# Loads plans one after the other, and prints the milliseconds of each; then the MB that a schedule of each but the
# first takes. It asks the driver for them, as importing PyTorch takes longer than all else.
LOADER = """
import ctypes, sys, time
from attn import _libattn

def load(path):
    with open(path, "rb") as file:
        contents = file.read()
    start = time.perf_counter()
    executable = _libattn.Executable(_libattn.runtime(0), _libattn.PlanFile(contents), 0)
    return (time.perf_counter() - start) * 1e3, executable

def free_bytes():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value

times, executables = zip(*map(load, sys.argv[1:]))
driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxPushCurrent_v2(context) == 0
free, schedules = [free_bytes()], []
for executable in executables[1:]:
    schedules.append(_libattn.Schedule(executable))
    free.append(free_bytes())
print(*times, *((before - after) / 1e6 for before, after in zip(free, free[1:])))
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


def loaded(first, files):
    """Medians of processes that load `first`, then the files: milliseconds of the first, and of each file, and MB of
    a schedule of each file."""
    runs = [subprocess.run([sys.executable, "-c", LOADER, first, *files], check=True, capture_output=True, text=True)
            for _ in range(LOADS)]
    before, *rest = [statistics.median(column) for column in zip(*(map(float, run.stdout.split()) for run in runs))]
    return before, rest[:len(files)], rest[len(files):]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.mkdtemp()))
    parser.add_argument("--target", default="h200")
    parser.add_argument("--attnc", default=os.environ.get("ATTN_ATTNC", "build/attnc"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print("| model | layers | plans | compile: decode, mixed | bytes | load, ms | schedule, MB |", flush=True)
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    first, _ = compiled(LOADED_FIRST, True, options) if plan.local_gpu() is not None else (None, 0)
    first_times = []
    for row in ROWS_OF_TABLE:
        files, seconds = zip(*(compiled(row, decodes, options) for decodes in (True, False)))
        times, memory = ["-"], ["-"]
        if first is not None:
            before, times, memory = loaded(first, files)
            first_times.append(before)
            times, memory = [f"{each:.1f}" for each in times], [f"{each:.0f}" for each in memory]
        columns = [f"{each:.1f} s" for each in seconds], [f"{file.stat().st_size:,}" for file in files], times, memory
        joined = (", ".join(column) for column in columns)
        print("|", " | ".join((row.model, row.layers, str(len(files)), *joined)), "|", flush=True)
    if first_times:
        print(f"\nThe first load of a process takes {statistics.median(first_times):.0f} ms, with the driver's context.")


if __name__ == "__main__":
    main()
