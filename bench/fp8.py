#!/usr/bin/env python3
"""Times attention in 8-bit floats beside bf16, forward and backward, full and causal, by each engine that
computes it, and prints TFLOP/s beside those that cudnn-frontend publishes.

    python3 bench/fp8.py [--attnc build/attnc] [--size 4096 ...] [--depth 128 ...] [--masks full causal]
        [--types e4m3 bf16] [--engine cudnn native] [--tokens 32768] [--plans FOLDER] [--runs 9] [--out FILE.json]
        [--target native] [--compile-only | --dry-run]

Each row has 16 heads, and as many batches as make --tokens of each size. Needs a GPU, except with --compile-only,
which writes the plans to FOLDER, and --dry-run, which lists the rows.
"""
import argparse
import concurrent.futures
import contextlib
import datetime
import itertools
import json
import pathlib
import subprocess
import tempfile
import time
from typing import NamedTuple

import results
from compare_peers import attnc_json, first_line

HEADS = 16
AT_ONCE = 8  # compilations; those for the local GPU need its memory
MASKS = {"full": "", "causal": "mask q_idx >= kv_idx;"}
SCALES = ("scale_s = 256, descale_s = 1 / 256, scale_o = 64, descale_o = 1 / 64, scale_dp = 1024, "
          "descale_dp = 1 / 1024, scale_dq = 64, scale_dk = 64, scale_dv = 64")
TYPES = {"e4m3": (f"dtype e4m3; quantize per_tensor, {SCALES};", "o, lse, amax_s, amax_o"),
         "bf16": ("dtype bf16;", "o, lse")}
DIRECTIONS = {"fwd": "forward", "bwd": "backward"}

# TFLOP/s, forward and backward, of one batch with 64 heads of 128, 8 of keys, on an H200 with cuDNN 9.19.1:
# github.com/NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training/results/h200_919_only_cudnn,
# llama3.1_20260227_034703.csv.
PUBLISHED_BY = "cudnn-frontend, H200, cuDNN 9.19.1, b1 hq64 hkv8 d128"
PUBLISHED = {("e4m3", "full", 4096): (973, 602), ("e4m3", "causal", 4096): (854, 471),
             ("e4m3", "full", 8192): (1023, 636), ("e4m3", "causal", 8192): (964, 430),
             ("e4m3", "full", 16384): (1055, 659), ("e4m3", "causal", 16384): (1010, 374),
             ("e4m3", "full", 32768): (1062, 674), ("e4m3", "causal", 32768): (1042, 370),
             ("bf16", "full", 4096): (671, 560), ("bf16", "causal", 4096): (591, 474),
             ("bf16", "full", 8192): (691, 594), ("bf16", "causal", 8192): (644, 541),
             ("bf16", "full", 16384): (702, 612), ("bf16", "causal", 16384): (673, 579),
             ("bf16", "full", 32768): (693, 572), ("bf16", "causal", 32768): (688, 581)}
PUBLISHED_DEPTH = 128


class Subject(NamedTuple):
    """What is compiled once, for both directions."""

    depth: int
    mask: str
    size: int
    type: str
    engine: str

    @property
    def name(self):
        return f"{self.type}_{self.engine}_{self.mask}_s{self.size}_d{self.depth}"

    def text(self, tokens):
        types, outputs = TYPES[self.type]
        batches = max(1, tokens // self.size)
        return (f"attention {self.name} {{ dims B = {batches}, Hq = {HEADS}, Sq = {self.size}, D = {self.depth}; "
                f"{types} {MASKS[self.mask]} outputs {outputs}; grad q, k, v; }}\n")


class Plan(NamedTuple):
    subject: Subject
    file: pathlib.Path
    directions: tuple  # that it has
    errors: dict  # of the other directions


def compiled(options, subject):
    """The plan of both directions, or of the forward alone, or of neither."""
    spec = options.plans / f"{subject.name}.attn"
    file = spec.with_suffix(".attnplan")
    spec.write_text(subject.text(options.tokens), encoding="utf-8")
    errors = {}
    for direction, missing in ("both", "bwd"), ("fwd", "fwd"):
        try:
            attnc_json(options, "compile", spec, "-o", file, "--engine", subject.engine, "--target", options.target,
                       "--direction", direction)
        except RuntimeError as error:
            errors[missing] = first_line(error)
            continue
        return Plan(subject, file, ("fwd", "bwd") if direction == "both" else ("fwd",), errors)
    return Plan(subject, file, (), errors)


def compile_all(options, subjects):
    begin, plans = time.monotonic(), []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for plan in pool.map(lambda subject: compiled(options, subject), subjects):
            plans.append(plan)
            for direction, error in plan.errors.items():
                print(f"{plan.subject.name} {direction}: {error}", flush=True)
    print(f"{sum(bool(plan.directions) for plan in plans)} plans in {time.monotonic() - begin:.0f} s", flush=True)
    return plans


def row_of(subject, direction):
    return {**subject._asdict(), "direction": direction}


def failed(subject, direction, error):
    return {**row_of(subject, direction), "error": error}


def timed(options, plans, directions):
    """The rows of plans that have these directions. One process measures them all; after an error, which may have
    broken the GPU's context, another goes on with the next plan."""
    waiting = list(plans)
    while waiting:
        command = [options.attnc, "bench", *(plan.file for plan in waiting), "--device-only", "--direction",
                   "both" if len(directions) == 2 else "fwd", "--iterations", str(options.runs), "--format", "jsonl"]
        missing, error = list(directions), None
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            for answer in map(json.loads, process.stdout):
                if "error" in answer:
                    error = answer["error"]["message"]
                    process.kill()
                    break
                yield measured(waiting[0].subject, answer)
                missing.remove(answer["direction"])
                if not missing:
                    missing = list(directions)
                    del waiting[0]
            error = error or process.stderr.read()
        for direction in missing if waiting else ():
            yield failed(waiting[0].subject, direction, first_line(error))
        del waiting[:1]


def measured(subject, answer):
    device = answer["device"]
    return {**row_of(subject, answer["direction"]), "ms": device["median_ms"], "tflops": device["tflops"],
            "peak_tflops": device["peak_tflops"], "form": answer["strategy"]}


def measure(options, plans):
    """All rows; prints each as it is measured."""
    rows = [failed(plan.subject, direction, error) for plan in plans for direction, error in plan.errors.items()]
    # What is compared is measured one after another: the clocks are the same.
    for _, group in itertools.groupby(plans, key=lambda plan: plan.subject[:3]):
        group = list(group)
        for directions in ("fwd", "bwd"), ("fwd",):
            alike = [plan for plan in group if plan.directions == directions]
            for row in timed(options, alike, directions) if alike else ():
                print(said(row), flush=True)
                rows.append(row)
    return rows


def said(row):
    about = (f"d {row['depth']:<3} {row['mask']:6} {row['size']:>6} {row['direction']} {row['type']} "
             f"{row['engine']:6}")
    if "error" in row:
        return f"{about} {row['error']}"
    if row["tflops"] is None:
        return f"{about} {row['ms']:8.3f} ms"
    return (f"{about} {row['ms']:8.3f} ms {row['tflops']:5.0f} TFLOP/s "
            f"{100 * row['tflops'] / row['peak_tflops']:3.0f} % of {row['peak_tflops']:.0f}")


def published(type, row, direction):
    if row[0] != PUBLISHED_DEPTH:
        return None
    both = PUBLISHED.get((type, *row[1:]))
    return both and both[list(DIRECTIONS).index(direction)]


def table(rows, direction, engines):
    """Markdown: a row of TFLOP/s for each head dimension, mask and size."""
    rows = [row for row in rows if row["direction"] == direction]
    measured = {(row["type"], row["engine"]) for row in rows if "ms" in row}
    columns = [column for column in itertools.product(TYPES, engines) if column in measured]
    types = list(dict.fromkeys(type for type, _ in columns))
    rates = {(row["depth"], row["mask"], row["size"], row["type"], row["engine"]): row.get("tflops") for row in rows}
    titles = ["d", "mask", "keys", *(f"{type} {engine}" for type, engine in columns),
              *(f"{type} published" for type in types)]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for place in sorted({key[:3] for key in rates}, key=lambda place: (-place[0], place[1] != "full", place[2])):
        cells = [rates.get((*place, *column)) for column in columns]
        cells += [published(type, place, direction) for type in types]
        lines.append("| " + " | ".join([*map(str, place), *(f"{rate:.0f}" if rate else "-" for rate in cells)]) + " |")
    return "\n".join(lines)


def report(rows, engines):
    for direction, name in DIRECTIONS.items():
        print(f"\n{name}, TFLOP/s\n\n{table(rows, direction, engines)}")
    print(f"\npublished: {PUBLISHED_BY}", flush=True)


def surroundings(options):
    version = attnc_json(options, "version")
    if not version["device"]["found"]:
        raise SystemExit("fp8.py needs a GPU: " + version["device"]["why"])
    return {"gpu": version["device"]["name"], "cudnn": version["cudnn"]["version"],
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "heads": HEADS,
            "tokens": options.tokens, "runs": options.runs, "published": PUBLISHED_BY}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attnc", default="build/attnc", type=pathlib.Path)
    parser.add_argument("--size", nargs="+", type=int, default=[4096, 16384, 32768], help="rows and keys")
    parser.add_argument("--depth", nargs="+", type=int, default=[128, 64], help="head dimensions")
    parser.add_argument("--masks", nargs="+", choices=MASKS, default=list(MASKS))
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--engine", nargs="+", default=["cudnn", "native"], help="of attnc compile")
    parser.add_argument("--tokens", type=int, default=32768, help="batches times rows")
    parser.add_argument("--plans", type=pathlib.Path, metavar="FOLDER", help="for the plans")
    parser.add_argument("--target", default="native", help="target of attnc compile")
    parser.add_argument("--jobs", type=int, default=AT_ONCE, help="parallel compilations")
    parser.add_argument("--runs", type=int, default=9, help="samples per time")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--dry-run", action="store_true", help="list what would be measured")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.json")
    options = parser.parse_args()
    if options.compile_only and not options.plans:
        parser.error("--compile-only needs --plans")
    return options


def main():
    options, begin = parse(), time.monotonic()
    subjects = [Subject(*each) for each in itertools.product(options.depth, options.masks, options.size, options.types,
                                                             options.engine)]
    if options.dry_run:
        for subject in subjects:
            print(subject.text(options.tokens), end="")
        return 0
    found = {} if options.compile_only else surroundings(options)
    with contextlib.ExitStack() as stack:
        if not options.plans:
            options.plans = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options.plans.mkdir(parents=True, exist_ok=True)
        plans = compile_all(options, subjects)
        if options.compile_only:
            return 0 if all(plan.directions for plan in plans) else 1
        rows = measure(options, plans)
    report(rows, options.engine)
    found |= {"seconds": round(time.monotonic() - begin), "rows": rows}
    if options.out:
        results.save(options.out, found)
    return 0 if any("ms" in row for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
