#!/usr/bin/env python3
"""Tests the statistics of cuDNN's dropout on the local GPU, and saves the masks for analysing the random
stream.

    dropout_stream.py ATTNC [OUT_FOLDER]

Weights are uniform and v is the identity, so that o shows every bit. Prints one line per case; the exit
code is 1 if a case fails. Writes the masks (.npz: bool [B,H,Sq,Skv] by case name) and a summary (.json)
to OUT_FOLDER.
"""

import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy

SPEC = pathlib.Path(__file__).with_name("dropout_stream.attn")


def kept(attnc, seed=0, offset=0, p=0.5, b=1, h=1, q=128, k=128):
    """The kept weights, bool [b,h,q,k]. k is at most 256."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        eye = numpy.broadcast_to(numpy.eye(k, dtype=numpy.float32), (b, h, k, k))
        numpy.save(folder / "v.npy", numpy.ascontiguousarray(eye))
        sizes = {"B": b, "Hq": h, "Hkv": h, "Sq": q, "Skv": k, "D": k, "p": p}
        command = [attnc, "run", str(SPEC), "--backend", "cudnn", "--in", "q=zeros", "--in", "k=zeros"]
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
# differ by less than 4.
RELATED = {"offset 1 keeps other weights", "axis 2 moved by 2", "axis 2 moved by 4", "axis 2 moved by 8"}


def unrelated(report, name, x, y):
    bound = 5 / math.sqrt(min(x.size, y.size))
    value = correlation(x, y)
    report.add(name, name in RELATED or abs(value) < bound, correlation=value, bound=bound)


def main():
    attnc = sys.argv[1]
    report, masks = Report(), {}

    def case(name, **arguments):
        masks[name] = kept(attnc, **arguments)
        share(report, name, masks[name], arguments.get("p", 0.5))
        return masks[name]

    base = case("base")
    report.add("the same seed keeps the same", numpy.array_equal(base, kept(attnc)))
    for name, arguments in {
        "seed 1": dict(seed=1),
        "seed 2^40": dict(seed=2**40),
        "offset 1": dict(offset=1),
        "offset 4": dict(offset=4),
        "offset 16": dict(offset=16),
        "offset 2^40": dict(offset=2**40),
    }.items():
        unrelated(report, f"{name} keeps other weights", base, case(name, **arguments))
    several = case("B 2, H 3", b=2, h=3)
    for one, other in itertools.combinations(itertools.product(range(2), range(3)), 2):
        unrelated(report, f"heads {one} and {other}", several[one], several[other])
    for axis, step in itertools.product((2, 3), (1, 2, 4, 8, 16, 32, 64)):
        moved = numpy.roll(several, step, axis)
        unrelated(report, f"axis {axis} moved by {step}", several, moved)
    for p in (0.1, 0.25, 0.75, 0.9):
        case(f"p {p}", p=p)
    # If one number per weight decides, weights kept at a higher p are also kept at a lower p.
    nested = not numpy.any(masks["p 0.75"] & ~masks["p 0.25"])
    report.lines.append({"case": "masks of growing p lie in each other", "nested": bool(nested)})
    print("     masks of growing p lie in each other:", nested, flush=True)
    case("Sq 64, Skv 256", q=64, k=256)
    case("Sq 1", q=1, k=128, b=8, h=8)
    # Bounds on the random number of each bit, for analysing the stream.
    for i in range(1, 16):
        case(f"p {i}/16, seed 123", p=i / 16, seed=123)
    if len(sys.argv) > 2:
        folder = pathlib.Path(sys.argv[2])
        folder.mkdir(parents=True, exist_ok=True)
        numpy.savez_compressed(folder / "dropout_masks.npz", **masks)
        (folder / "dropout_stream.json").write_text(json.dumps(report.lines, indent=1) + "\n")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
