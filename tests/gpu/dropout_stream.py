#!/usr/bin/env python3
"""Tests the statistics of random dropout, and saves the masks for analysing the random stream.

    dropout_stream.py ATTNC [OUT_FOLDER] [--engine cudnn|native|reference]

The engine is cudnn by default; it and native run on the local GPU. Masks of native and of the reference
must be those of attnc's random numbers (docs/language.md), which are computed here once more.

Weights are uniform and v is the identity, so that o shows every bit. Prints one line per case; the exit
code is 1 if a case fails. Writes the masks (.npz: bool [B,H,Sq,Skv] by case name) and a summary (.json)
to OUT_FOLDER.
"""

import argparse
import concurrent.futures
import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

SPEC = pathlib.Path(__file__).with_name("dropout_stream.attn")


class Attnc:
    """A command and the arguments that choose the engine."""

    def __init__(self, command, engine):
        self.run = [command, "run", str(SPEC), "--backend", "reference" if engine == "reference" else "cudnn"]
        if engine != "reference":
            self.run += ["--engine", engine]


def philox(counter, key):
    """Philox4x32-10 of arrays of 4 and 2 words (Salmon et al., SC 2011)."""
    word, upper = numpy.uint64(0xFFFFFFFF), numpy.uint64(32)
    a, b, c, d = (numpy.asarray(x, numpy.uint64) for x in counter)
    k0, k1 = (numpy.asarray(x, numpy.uint64) for x in key)
    for _ in range(10):
        x, y = a * numpy.uint64(0xD2511F53), c * numpy.uint64(0xCD9E8D57)
        a, b, c, d = y >> upper ^ b ^ k0, y & word, x >> upper ^ d ^ k1, x & word
        k0, k1 = k0 + numpy.uint64(0x9E3779B9) & word, k1 + numpy.uint64(0xBB67AE85) & word
    return a, b, c, d


def numbered(seed=0, offset=0, p=0.5, b=1, h=1, q=128, k=128):
    """What attnc's numbers keep, bool [b,h,q,k]."""
    key = philox((offset & 0xFFFFFFFF, offset >> 32, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[:2]
    ib, ih, iq, ik = numpy.meshgrid(*map(numpy.arange, (b, h, q, k)), indexing="ij")
    words = philox((ik // 32 * 4 + ik % 8 // 2, iq, ih, ib), key)
    word = numpy.choose(ik // 8 % 4, words)
    number = word >> (ik % 2 * 16).astype(numpy.uint64) & numpy.uint64(0x7FFF)
    return number >= min(math.floor(p * 2**15 + 0.5), 2**15 - 1)


def kept(attnc, seed=0, offset=0, p=0.5, b=1, h=1, q=128, k=128):
    """The kept weights, bool [b,h,q,k]. k is at most 256."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        eye = numpy.broadcast_to(numpy.eye(k, dtype=numpy.float32), (b, h, k, k))
        numpy.save(folder / "v.npy", numpy.ascontiguousarray(eye))
        sizes = {"B": b, "Hq": h, "Hkv": h, "Sq": q, "Skv": k, "D": k, "p": p}
        command = attnc.run + ["--in", "q=zeros", "--in", "k=zeros"]
        command += ["--in", f"v=@{folder}/v.npy", "--in", f"seed={seed}", "--in", f"offset={offset}"]
        for name, value in sizes.items():
            command += ["--bind", f"{name}={value}"]
        subprocess.run(command + ["--out", f"o={folder}/o.npy"], check=True, capture_output=True)
        return numpy.load(folder / "o.npy") != 0


class Report:
    def __init__(self):
        self.lines = []
        self.failed = False

    def add(self, name, ok, **values):
        self.failed |= not ok
        self.lines.append({"case": name, "ok": bool(ok), **values})
        print("ok  " if ok else "FAIL", name, values, flush=True)


def share(report, name, mask, p):
    """Checks that the kept share is within five standard deviations of 1 - p."""
    share = mask.mean()
    report.add(name, abs(share - (1 - p)) < 5 * math.sqrt(p * (1 - p) / mask.size), share=float(share))


def correlation(x, y):
    return float(numpy.corrcoef(x.ravel(), y.ravel())[0, 1])


# With cuDNN 9.19, rows that are 2, 4 and 8 apart get mostly the same numbers, and so do offsets that
# differ by less than 4. attnc's kernels and the reference have no such relations.
RELATED = {"offset 1 keeps other weights", "axis 2 moved by 2", "axis 2 moved by 4", "axis 2 moved by 8"}


OTHERS = {
    "seed 1": dict(seed=1),
    "seed 2^40": dict(seed=2**40),
    "offset 1": dict(offset=1),
    "offset 4": dict(offset=4),
    "offset 16": dict(offset=16),
    "offset 2^40": dict(offset=2**40),
}
CASES = {
    "base": {},
    "base again": {},
    **OTHERS,
    "B 2, H 3": dict(b=2, h=3),
    **{f"p {p}": dict(p=p) for p in (0.1, 0.25, 0.75, 0.9)},
    "Sq 64, Skv 256": dict(q=64, k=256),
    "Sq 1": dict(q=1, k=128, b=8, h=8),
    # Bounds on the random number of each bit, for analysing the stream.
    **{f"p {i}/16, seed 123": dict(p=i / 16, seed=123) for i in range(1, 16)},
}
# attnc's kernels compare with a large p in another way.
CASES_OF_ATTNC = {**CASES, "p 0.99": dict(p=0.99)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attnc")
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--engine", choices=("cudnn", "native", "reference"), default="cudnn")
    options = parser.parse_args()
    attnc = Attnc(options.attnc, options.engine)
    cudnn = options.engine == "cudnn"
    cases = CASES if cudnn else CASES_OF_ATTNC
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = pool.map(lambda arguments: kept(attnc, **arguments), cases.values())
        masks = dict(zip(cases, found))
    report = Report()

    def unrelated(name, x, y):
        bound = 5 / math.sqrt(min(x.size, y.size))
        value = correlation(x, y)
        ok = abs(value) < bound or cudnn and name in RELATED
        report.add(name, ok, correlation=value, bound=bound)

    for name, arguments in cases.items():
        share(report, name, masks[name], arguments.get("p", 0.5))
        if not cudnn:
            report.add(f"{name}: attnc's numbers", numpy.array_equal(masks[name], numbered(**arguments)))
    report.add("the same seed keeps the same", numpy.array_equal(masks["base"], masks["base again"]))
    for name in OTHERS:
        unrelated(f"{name} keeps other weights", masks["base"], masks[name])
    several = masks["B 2, H 3"]
    for one, other in itertools.combinations(itertools.product(range(2), range(3)), 2):
        unrelated(f"heads {one} and {other}", several[one], several[other])
    for axis, step in itertools.product((2, 3), (1, 2, 4, 8, 16, 32, 64)):
        unrelated(f"axis {axis} moved by {step}", several, numpy.roll(several, step, axis))
    # If one number per weight decides, weights kept at a higher p are also kept at a lower p.
    nested = not numpy.any(masks["p 0.75"] & ~masks["p 0.25"])
    report.lines.append({"case": "masks of growing p lie in each other", "nested": bool(nested)})
    print("     masks of growing p lie in each other:", nested, flush=True)
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
        numpy.savez_compressed(options.folder / "dropout_masks.npz", **masks)
        (options.folder / "dropout_stream.json").write_text(json.dumps(report.lines, indent=1) + "\n")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
