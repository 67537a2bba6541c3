#!/usr/bin/env python3
"""Compiles the attentions of bench/variants, forward and backward, into a folder of plan files. Needs
no GPU if --target is a name.

    python3 bench/plans.py --target h200 --shape 4,32,8,4096,128 --out FOLDER [--rows NAME ...]

FOLDER/SHAPE/VARIANT.attnplan has both directions, or only the forward if the backward is refused.
FOLDER/SHAPE/plans.json lists the strategy of each plan, or the error. The exit code is 1 if any plan was
refused.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import results

LIST = "plans.json"


def form_of(strategy, program):
    """The strategy, followed by the steps if there are several."""
    counts = collections.Counter(step["step"] for step in program["steps"])
    if counts.total() == 1:
        return strategy
    steps = (name if count == 1 else f"{count} {name}" for name, count in counts.items())
    return f"{strategy}: {', '.join(steps)}"


def forms(compiled):
    """{direction: form} from the output of `attnc compile --format json`."""
    plans = compiled.get("plans") or [compiled | {"direction": "forward"}]
    return {plan["direction"]: form_of(plan["strategy"], plan["manifest"]["program"])
            for plan in plans}


def error_of(process):
    try:
        return json.loads(process.stdout)["error"]["message"]
    except (ValueError, KeyError):
        return process.stderr.strip() or f"exit code {process.returncode}"


def attnc_compile(options, variant, file, shape, direction):
    """(JSON output of compile, None), or (None, error)."""
    command = [options.attnc, "compile", results.VARIANTS / f"{variant}.attn", "-o", file,
               "--target", options.target, "--direction", direction, "--format", "json",
               *results.bindings(shape), *options.attnc_options]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    return (json.loads(process.stdout), None) if process.returncode == 0 else (None, error_of(process))


def compile_variant(options, variant, shape, folder):
    """An entry of plans.json: {"variant", "file", "forms": {direction: form}, "errors": {direction:
    error}}; file is null if both directions were refused."""
    file = folder / f"{variant}.attnplan"
    file.unlink(missing_ok=True)
    errors = {}
    for direction, names in ("both", "backward"), ("fwd", "forward"):
        compiled, error = attnc_compile(options, variant, file, shape, direction)
        if compiled:
            return {"variant": variant, "file": file.name, "forms": forms(compiled), "errors": errors}
        errors[names] = error
    return {"variant": variant, "file": None, "forms": {}, "errors": errors}


def compile_shape(options, shape, folder):
    """Compiles all rows for a shape. Writes plans.json and returns its content."""
    folder.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        entries = pool.map(lambda row: compile_variant(options, row, shape, folder), options.rows)
        plans = []
        for entry in entries:
            plans.append(entry)
            for direction in results.DIRECTIONS:
                said = entry["forms"].get(direction) or "refused: " + entry["errors"][direction]
                print(f"{entry['variant']:20} {direction:9} {said.splitlines()[0]}", flush=True)
    made = {"target": options.target, "shape": shape, "plans": plans}
    results.save(folder / LIST, made)
    return made


def add_options(parser):
    """Adds the options shared with compare_peers.py."""
    parser.add_argument("--shape", action="append", type=results.parse_shape,
                        metavar="B,Hq,Hkv,S,D", help="repeatable (default: 4,32,8,4096,128)")
    parser.add_argument("--rows", nargs="+", choices=results.ORDER, default=results.ORDER,
                        metavar="NAME", help="variants (default: all)")
    parser.add_argument("--attnc", default="build/attnc", type=pathlib.Path)
    parser.add_argument("--attnc-option", action="append", default=[], dest="attnc_options",
                        metavar="OPTION", help="option for attnc compile (repeatable)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="parallel compilations")


def parse(parser):
    options = parser.parse_args()
    options.shape = options.shape or [(4, 32, 8, 4096, 128)]
    return options


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--target", required=True, help="target of attnc compile")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="FOLDER")
    options = parse(parser)
    failed = 0
    for shape in options.shape:
        made = compile_shape(options, shape, options.out / results.shape_name(shape))
        failed += sum(bool(plan["errors"]) for plan in made["plans"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
