#!/usr/bin/env python3
"""Times plans of both engines for the shapes of shapes.py, beside what was predicted for them.

    python3 bench/measure.py [--attnc build/attnc] [--out FILE.jsonl] [--cudnn FOLDER] [--jobs 16]
        [--budget SECONDS] [--runs 15] [--only WORD ...] [--compile-only] [--plans FOLDER] [--target h200] [--auto]

Needs a GPU, except with --compile-only. Plans are compiled in parallel, and then timed one after another: a busy
host delays what it times. The lengths that are timed are those that the spec declares, and the L2 cache is flushed, as
`attnc bench` does. The first line of FILE.jsonl
says what was measured with (GPU, versions, date), and each other line is a row:

    {"name", "group", "set", "spec", "engine", "direction", "takes", "strategy", "predicted_ms", "measured_ms",
     "workspace_bytes"}

A row of what an engine refuses has "refused", one that failed "error". With --auto, each shape that both engines
compute has a row of the engine "auto" too, whose "takes" is the engine that `compile` chooses, measuring near ones.
Rows are written when they are known, so that a run that is cut has its first ones; --budget ends it in time.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import shapes

ENGINES = ("native", "cudnn")
MOST_AT_ONCE = 12  # plans that one process times: what ends it loses no others
COMPILE_LIMIT = 150  # seconds


def first_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[0][:300] if lines else "no message"


def error_of(process):
    try:
        return first_line(json.loads(process.stdout)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return first_line(process.stderr or process.stdout or f"exit code {process.returncode}")


class Attnc:
    """The command line, with the options that every call has."""

    def __init__(self, options):
        self.path = str(pathlib.Path(options.attnc).resolve())
        self.cudnn = ["--cudnn", options.cudnn] if options.cudnn else []
        self.target = ["--target", options.target] if options.target else []

    def run(self, *arguments, limit=None, cudnn=True):
        command = [self.path, *map(str, arguments), *(self.cudnn if cudnn else [])]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)

    def json(self, *arguments, **options):
        process = self.run(*arguments, "--format", "json", **options)
        return json.loads(process.stdout) if process.returncode == 0 else {}

    def compile(self, spec, engine, direction, plan):
        """Empty, or why not."""
        arguments = ("compile", spec, "--engine", engine, "--direction", direction, "-o", plan, "--format", "json",
                     "--use-cache")
        try:
            process = self.run(*arguments, *self.target, limit=COMPILE_LIMIT)
        except subprocess.TimeoutExpired:
            return f"not compiled within {COMPILE_LIMIT} s"
        return "" if process.returncode == 0 else error_of(process)


class Job:
    """A shape by one engine: its plan file, once it is compiled, and the rows of its directions."""

    def __init__(self, shape, engine, folder):
        self.shape, self.engine = shape, engine
        self.stem = folder / f"{shape.name}.{engine}"
        self.plan = self.stem.with_name(self.stem.name + ".attnplan")
        self.refused = None
        self.known = {}  # by direction: what `inspect` says

    @property
    def asked(self):
        return "both" if len(self.shape.directions) > 1 else self.shape.directions[0]

    def row(self, direction, **more):
        shape = self.shape
        return {"name": shape.name, "group": shape.group, "set": shape.set, "spec": shape.spec, "engine": self.engine,
                "direction": direction, **self.known.get(direction, {}), **more}


def inspected(attnc, plan):
    """Strategy, prediction and workspace of a plan, by direction."""
    said = attnc.json("inspect", plan, cudnn=False)
    known = {}
    for each in said.get("plans") or [said]:
        manifest = each.get("manifest", each)
        direction = "bwd" if each.get("direction") == "backward" else "fwd"
        chosen = (manifest.get("choice") or [{}])[0]
        known[direction] = {"takes": chosen.get("engine"), "strategy": chosen.get("strategy"),
                            "predicted_ms": chosen.get("predicted_ms"),
                            "workspace_bytes": manifest.get("workspace_bytes")}
    return known


class Rows:
    """The results file, written row by row."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")
        self.count = 0

    def add(self, row):
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()
        self.count += 1


def compile_job(attnc, job, end):
    if time.monotonic() > end:
        job.refused = "no time left"
        return
    spec = job.stem.with_name(job.stem.name + ".attn")
    spec.write_text(job.shape.spec, encoding="utf-8")
    if not job.plan.exists():
        job.refused = attnc.compile(spec, job.engine, job.asked, job.plan) or None
    if job.refused is None:
        job.known = inspected(attnc, job.plan)


def timed_rows(attnc, jobs, options, left):
    """The rows of `attnc bench` for these plans, by plan: those before it failed or ran out of time."""
    arguments = [attnc.path, "bench", *(str(job.plan) for job in jobs), "--device-only", "--format", "jsonl",
                 "--iterations", str(options.runs), "--direction", jobs[0].asked, *attnc.cudnn]
    limit = max(5.0, min(left, 20.0 * len(jobs)))
    try:
        process = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=limit)
        code = process.returncode
        text, why = process.stdout, first_line(process.stderr or f"ended with exit code {code}") if code else ""
    except subprocess.TimeoutExpired as ended:
        text, why = (ended.stdout or b"").decode(), f"not timed within {limit:.0f} s"
    rows = {}
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        rows.setdefault(pathlib.Path(row["spec"]).name, []).append(row)
    return rows, why


def milliseconds_of(device):
    """The median; the 10th percentile where the host delayed some samples."""
    delayed = device["p90_ms"] > 1.25 * device["p10_ms"] and device["median_ms"] > 1.03 * device["p10_ms"]
    return device["p10_ms"] if delayed else device["median_ms"]


def add_timed(job, rows, out):
    for row in rows:
        if "error" in row:
            out.add(job.row(job.shape.directions[0], error=first_line(str(row["error"].get("message", row["error"])))))
            continue
        out.add(job.row(row["direction"], measured_ms=milliseconds_of(row["device"])))


def time_jobs(attnc, jobs, options, out, end):
    """Times jobs of the same directions. What ended the process is left out, and the others are timed again."""
    while jobs and time.monotonic() < end:
        rows, why = timed_rows(attnc, jobs, options, end - time.monotonic())
        taken = 0
        for job in jobs:  # an error may be of all that is timed after it, too
            found = rows.get(job.plan.name, [])
            failed = any("error" in row for row in found)
            if not failed and len(found) < len(job.shape.directions):
                out.add(job.row(job.shape.directions[0], error=why or "ended without a row"))
                failed = True
            else:
                add_timed(job, found, out)
            taken += 1
            if failed:
                break
        jobs = jobs[taken:]
    for job in jobs:
        out.add(job.row(job.shape.directions[0], error="no time left"))


def choose(attnc, jobs, out, end):
    """Adds the engine that is taken for each shape, one shape after another: some are measured."""
    for native, cudnn in zip(jobs[::2], jobs[1::2]):
        if native.refused or cudnn.refused or time.monotonic() > end:
            continue
        job = Job(native.shape, "auto", native.plan.parent)
        compile_job(attnc, job, end)
        for direction in job.shape.directions:
            out.add(job.row(direction, **({"refused": job.refused} if job.refused else {})))


def surroundings(attnc, options):
    version = attnc.json("version")
    device = version.get("device", {})
    return {"gpu": device.get("name"), "cudnn": version.get("cudnn", {}).get("version"),
            "driver": device.get("driver"),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "runs": options.runs}


def cudnn_folder():
    """Where the Python environment has it, or nothing: attnc then looks for it itself."""
    for path in sys.path:
        folder = pathlib.Path(path) / "nvidia" / "cudnn" / "lib"
        if folder.is_dir():
            return str(folder)
    return None


def batches_of(jobs):
    """Jobs by direction: those of the same directions are one batch, in order."""
    batches = []
    for job in jobs:
        if batches and len(batches[-1]) < MOST_AT_ONCE and batches[-1][0].asked == job.asked:
            batches[-1].append(job)
        else:
            batches.append([job])
    return batches


def run(options):
    began = time.monotonic()
    end = began + options.budget
    attnc = Attnc(options)
    folder = pathlib.Path(options.plans or tempfile.mkdtemp(prefix="measure"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["ATTN_CACHE_DIR"] = str(folder / "cache")  # what chooses finds the plans that are timed
    chosen = [shape for shape in shapes.all_shapes()
              if not options.only or any(re.search(word, f"{shape.group} {shape.set} {shape.name}")
                                         for word in options.only)]
    jobs = [Job(shape, engine, folder) for shape in chosen for engine in ENGINES]
    out = Rows(options.out)
    out.add(surroundings(attnc, options))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda job: compile_job(attnc, job, end - options.budget / 2), jobs))
    print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
    if options.auto:
        choose(attnc, jobs, out, end - options.budget / 4)
        print(f"chose in {time.monotonic() - began:.0f} s", flush=True)
    for job in jobs:
        if job.refused is not None or options.compile_only:
            for direction in job.shape.directions:
                out.add(job.row(direction, **({"refused": job.refused} if job.refused else {})))
    if not options.compile_only:
        for batch in batches_of([job for job in jobs if job.refused is None]):
            time_jobs(attnc, batch, options, out, end)
    if not options.plans:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{out.count - 1} rows in {time.monotonic() - began:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attnc", default="build/attnc")
    parser.add_argument("--out", default="measured.jsonl")
    parser.add_argument("--cudnn", default=cudnn_folder())
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--budget", type=float, default=600)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--only", nargs="*", default=[], help="words of a group, set or name")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--auto", action="store_true", help="also the engine that `compile` chooses")
    parser.add_argument("--plans", help="keeps the plans here, and uses those that are there")
    parser.add_argument("--target", help="default: the local GPU")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
