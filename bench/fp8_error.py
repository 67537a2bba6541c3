#!/usr/bin/env python3
"""How much attention in 8-bit floats, with a scale for each tensor, differs from the attention of the values before
they are rounded: relative L2 of o, dq, dk and dv, beside bf16.

    python3 bench/fp8_error.py [--attnc build/attnc] [--backends reference cudnn] [--data NAME ...] [--types NAME ...]
        [--size 1024] [--heads 4] [--seed 0] [--engine auto] [--out FILE.json]

Scales of q, k, v and do make the largest magnitude the largest value of the type. Those of o, ds and the gradients
come from the amax outputs of a run of the reference before, as delayed scaling has them once training is steady. The
expected values are the reference's, in double precision and of the data as it is. Causal, head dimension 128. On a
GPU, forward and backward of attnc's own kernels beside those of bf16:

    python3 bench/fp8_error.py --backends cudnn --engine native
"""
import argparse
import concurrent.futures
import itertools
import os
import pathlib
import subprocess
import tempfile

import numpy

import results
from compare_peers import attnc_json
from plans import error_of

DEPTH = 128
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
GRADIENTS = ("dq", "dk", "dv")

# The types of q, k, v and o; of do; of dq, dk and dv.
TYPES = {"bf16": None, "e4m3": ("e4m3", "e4m3", "e4m3"), "hybrid": ("e4m3", "e5m2", "e5m2"),
         "e5m2": ("e5m2", "e5m2", "e5m2")}


def normal(rng, shapes):
    """Standard normal values."""
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def rare(rng, shapes):
    """N(0, 1) + N(0, 100) Bernoulli(0.001): how FlashAttention-3 measures the error of FP8 (Shah et al. 2024,
    section 4.3)."""
    return {name: rng.normal(size=shape) + 10 * rng.normal(size=shape) * (rng.random(shape) < 0.001)
            for name, shape in shapes.items()}


def channels(rng, shapes):
    """As in language models: a few channels of k, the same for all tokens of a head, are 10 to 50 times larger, half
    of it a constant, and v has none (KIVI, Liu et al. 2024, figure 2; KVQuant, Hooper et al. 2024); all values are
    heavy-tailed, Student's t with 5 degrees of freedom (activations: LLM.int8(), Dettmers et al. 2022)."""
    tensors = {name: rng.standard_t(5, size=shape) / (5 / 3) ** 0.5 for name, shape in shapes.items()}
    k = tensors["k"]
    for head in numpy.ndindex(k.shape[:2]):
        for channel in rng.choice(DEPTH, size=4, replace=False):
            size = rng.uniform(10, 50)
            k[head][:, channel] = size * (rng.choice([-0.5, 0.5]) + 0.5 * k[head][:, channel])
    return tensors


DATA = {function.__name__: function for function in (normal, rare, channels)}


def spec_of(types, size, heads):
    quantize = "dtype bf16; outputs o, lse;"
    if types:
        of_q, of_do, of_gradients = types
        quantize = (f"dtype {of_q}; quantize per_tensor, do: {of_do}, gradients: {of_gradients}; "
                    "outputs o, lse, amax_s, amax_o;")
    return (f"attention error {{ dims B = 1, Hq = {heads}, Sq = {size}, D = {DEPTH}; {quantize} "
            "mask q_idx >= kv_idx; grad q, k, v; }\n")


class Attnc:
    def __init__(self, options, backend, folder):
        self.options, self.backend, self.folder = options, backend, folder

    def run(self, types, inputs, *more):
        """The outputs and gradients of a spec, by name. Raises RuntimeError."""
        spec = self.folder / "error.attn"
        spec.write_text(spec_of(types, self.options.size, self.options.heads), encoding="utf-8")
        names = ["o", *GRADIENTS]
        if types:
            names += ["amax_s", "amax_o", "amax_dp", *(f"amax_{name}" for name in GRADIENTS)]
        command = [self.options.attnc, "run", spec, "--direction", "both", "--format", "json", *more]
        command += ["--backend", self.backend]
        if self.backend == "cudnn":
            command += ["--engine", self.options.engine, "--use-cache"]
        for name, value in inputs.items():
            numpy.save(self.folder / f"{name}.npy", numpy.asarray(value))
            command += ["--in", f"{name}=@{self.folder / name}.npy"]
        for name in names:
            command += ["--out", f"{name}={self.folder / name}_out.npy"]
        cache = {"ATTN_CACHE_DIR": str(self.folder / "cache")}
        process = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | cache)
        if process.returncode != 0:
            raise RuntimeError(error_of(process))
        return {name: numpy.load(self.folder / f"{name}_out.npy").astype(float) for name in names}


class Scaled:
    """Inputs in 8 bits, and their scales."""

    def __init__(self, reference, types, inputs):
        of_q, of_do, of_gradients = self.types = types
        largest = {"q": of_q, "k": of_q, "v": of_q, "do": of_do}
        descales = {name: abs(x).max() / LARGEST[largest[name]] for name, x in inputs.items()}
        self.inputs = {name: x / descales[name] for name, x in inputs.items()}
        self.scales = {f"descale_{name}": value for name, value in descales.items()}
        self.scales |= pair("s", LARGEST[of_q])  # a weight is at most 1
        found = reference.run(types, self.all())
        self.scales |= pair("o", LARGEST[of_q] / found["amax_o"][0])
        self.scales |= pair("dp", LARGEST[of_do] / found["amax_dp"][0])
        self.scales |= {f"scale_{name}": LARGEST[of_gradients] / found[f"amax_{name}"][0] for name in GRADIENTS}

    def all(self):
        scales = {name: numpy.array([value], numpy.float32) for name, value in self.scales.items()}
        return {**self.inputs, **scales}

    def run(self, attnc):
        """What it computes, with the scales taken back."""
        found = attnc.run(self.types, self.all())
        return {name: found[name] / self.scales[f"scale_{name}"] for name in ("o", *GRADIENTS)}


def pair(name, scale):
    return {f"scale_{name}": scale, f"descale_{name}": 1 / scale}


def errors(found, expected):
    return {name: float(numpy.linalg.norm(found[name] - expected[name]) / numpy.linalg.norm(expected[name]))
            for name in ("o", *GRADIENTS)}


def measure(options, data):
    """The rows of one data set; prints each."""
    shape = (1, options.heads, options.size, DEPTH)
    inputs = DATA[data](numpy.random.default_rng(options.seed), dict.fromkeys(("q", "k", "v", "do"), shape))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        attncs = {name: Attnc(options, name, pathlib.Path(folder)) for name in ("reference", *options.backends)}
        expected = attncs["reference"].run(None, inputs, "--unrounded")
        scaled = {name: TYPES[name] and Scaled(attncs["reference"], TYPES[name], inputs) for name in options.types}
        for backend, name in itertools.product(options.backends, options.types):
            is_gpu = backend == "cudnn" and options.engine != "auto"
            row = {"data": data, "type": name, "backend": options.engine if is_gpu else backend}
            attnc = attncs[backend]
            try:
                row |= errors(scaled[name].run(attnc) if scaled[name] else attnc.run(None, inputs), expected)
            except RuntimeError as error:
                row["error"] = str(error).splitlines()[0]
            print(said(row), flush=True)
            rows.append(row)
    return rows


def said(row):
    about = f"| {row['data']} | {row['type']} | {row['backend']} | "
    if "error" in row:
        return f"{about}{row['error']} | | | |"
    return about + " | ".join(f"{row[name]:.2e}" for name in ("o", *GRADIENTS)) + " |"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attnc", default="build/attnc", type=pathlib.Path)
    parser.add_argument("--backends", nargs="+", choices=("reference", "cudnn"),
                        help="of attnc run; cudnn is the GPU (default: reference, and cudnn if there is a GPU)")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--size", type=int, default=1024, help="rows and keys")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", default="auto", help="of attnc run, on the GPU")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.json")
    options = parser.parse_args()
    if not options.backends:
        there = attnc_json(options, "version")["device"]["found"]
        options.backends = ["reference", "cudnn"] if there else ["reference"]
    return options


def main():
    options = parse()
    print("| data | type | backend | o | dq | dk | dv |\n|---|---|---|---|---|---|---|", flush=True)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        rows = sum(pool.map(lambda data: measure(options, data), options.data), [])
    if options.out:
        results.save(options.out, {"size": options.size, "heads": options.heads, "depth": DEPTH, "rows": rows})
    return 0 if any("o" in row for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
