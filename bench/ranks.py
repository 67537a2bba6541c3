#!/usr/bin/env python3
"""Times one attention on several GPUs: divided by attnc, and by ring attention and Ulysses of the same kernels,
beside one GPU, for masks of long sequences, forward and backward.

    python3 bench/ranks.py --prepare --plans FOLDER [--target h100]      # anywhere, without a GPU
    python3 bench/ranks.py --plans FOLDER [--ranks 2] [--size 32768 131072 524288] [--masks causal ...]
        [--schemes one divided ring ulysses] [--heads 32] [--key-heads 8] [--depth 128] [--budget 0.4]
        [--most-seconds 240] [--no-profile] [--out FILE.json]

One process for each GPU. A time is that of the slowest rank, from when all begin, by CUDA events; the median of
as many runs as fit into --budget seconds, of 3 at least if they take less than 2 s each. Results of each scheme are compared with one GPU's. If a process fails
or hangs, all begin again without what it was doing. PYTHONPATH must have the package `attn`.
"""
import argparse
import datetime
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import ranks_plans
import results

WORKER = pathlib.Path(__file__).with_name("ranks_worker.py")
DIRECTIONS = ("fwd", "bwd")
FIRST = ("causal", "documents")  # masks, if the time is not enough for all
TOLERANCE = 2e-2  # relative L2 of bf16


class Run:
    """One start of the processes, with all that is left to do."""

    def __init__(self, options, folder, number, todo, environment):
        self.todo = todo
        file = folder / f"todo{number}.json"
        file.write_text(json.dumps(todo))
        self.lines = [folder / f"lines{number}_{rank}.jsonl" for rank in range(options.ranks)]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, WORKER, "--plans", options.plans, "--todo", file, "--budget", str(options.budget)]
        command += [] if options.no_profile else ["--profile"]
        self.logs = [folder / f"log{number}_{rank}.txt" for rank in range(options.ranks)]
        self.processes = []
        for rank, (lines, log) in enumerate(zip(self.lines, self.logs)):
            lines.touch()
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": options.ranks, "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": port}
            with open(log, "wb") as output:
                self.processes.append(subprocess.Popen(
                    [*command, "--lines", lines], stdout=output, stderr=subprocess.STDOUT,
                    env={**environment, **{name: str(value) for name, value in place.items()}}))

    def follow(self, options, deadline, keep):
        """Until all have ended, or one fails or nothing happens for long. `keep` is called for what is new."""
        seen, last = 0, time.monotonic()
        while True:
            ended = all(process.poll() is not None for process in self.processes)
            failed = any(process.poll() not in (None, 0) for process in self.processes)
            lines = sum(len(lines.read_bytes().splitlines()) for lines in self.lines)
            now = time.monotonic()
            if lines != seen:
                seen, last = lines, now
                self.read()
                keep(self)
            why = (f"nothing happened for {options.patience} s" if now - last > options.patience else
                   "the time is up" if now > deadline else "")
            if ended or failed or why:
                break
            time.sleep(0.1)
        if failed:
            time.sleep(1)  # others may say more
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.read()
        if self.begun is not None and self.begun not in self.ended and self.begun not in self.errors:
            self.errors[self.begun] = why or self.last_words()
        keep(self)

    def read(self):
        self.begun, self.ended, self.errors, self.rows, self.about = None, set(), {}, [], {}
        for rank, lines in enumerate(self.lines):
            for line in lines.read_text(encoding="utf-8").splitlines():
                try:
                    said = json.loads(line)
                except ValueError:
                    continue  # of a process that was killed
                if "gpu" in said:
                    self.about = said
                if "begin" in said:
                    self.begun = max(said["begin"], self.begun or 0)
                if "error" in said:
                    self.errors.setdefault(said["at"], said["error"])
                elif "row" in said and rank == 0:
                    self.rows.append((said["at"], said["direction"], said["row"]))
                elif "end" in said:
                    self.ended.add(said["end"])

    def last_words(self):
        for log in self.logs:
            words = log.read_text(errors="replace").strip().splitlines()
            if words:
                return f"a process ended: {words[-1]}"
        return "a process ended"


def measure(options, folder, todo):
    """Rows of all that could be measured, and errors of the rest; each is kept as soon as it is there."""
    environment = dict(os.environ)
    deadline = time.monotonic() + options.most_seconds
    found = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
             "ranks": options.ranks, "heads": [options.heads, options.key_heads, options.depth], "rows": []}
    before, number = [], 0

    def keep(run):
        found.update(run.about)
        found["rows"] = before + rows_of(run)
        if options.out:
            results.save(options.out, found)

    while todo and time.monotonic() < deadline:
        run = Run(options, folder, number, todo, environment)
        run.follow(options, deadline, keep)
        if run.begun is None:
            raise SystemExit(f"no process began: {run.last_words()}")
        for at, error in run.errors.items():
            case, scheme = todo[at]
            print(f"{case.name} {scheme}: {error}", flush=True)
        before = found["rows"]
        todo = [each for at, each in enumerate(todo) if at not in run.ended and at not in run.errors]
        number += 1
    for case, scheme in todo:
        print(f"{case.name} {scheme}: not measured: the time is up", flush=True)
    return found


def rows_of(run):
    def place(at):
        case, scheme = run.todo[at]
        return {"mask": case.mask, "size": case.size, "scheme": scheme}

    return [*({**place(at), "direction": direction, **row} for at, direction, row in run.rows),
            *({**place(at), "error": error} for at, error in run.errors.items())]


def received(options, case):
    """Megabytes that the rank with most receives, forward and backward: what follows from the plan's homes and
    parts (docs/plan-format.md, "Ranks")."""
    import numpy as np

    (plan,) = ranks_plans.plans_of(case, "divided")
    command = [options.attnc, "inspect", options.plans / f"{plan.name}.attnplan", "--format", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        division = json.loads(done.stdout)["ranks"]
    except (OSError, subprocess.CalledProcessError, KeyError):
        return {}  # no attnc, or no plan
    groups = division["groups_of_heads"]
    row_heads, key_heads = case.heads // groups, case.key_heads // groups
    vector = 2 * case.depth  # bytes of bf16

    def mask(*sets):
        found = np.zeros(case.size, bool)
        for each in sets:
            for begin, end in zip(each[::2], each[1::2]):
                found[begin:end] = True
        return found

    homes = [{name: mask(home[name]) for name in ("rows", "keys")} for home in division["homes"]]
    computed = [{name: mask(*(part[name] for part in team)) for name in ("rows", "keys")}
                for team in division["teams"]]

    def given(rank, name, heads, tensors, statistics):
        """Bytes that other ranks give of what is at home; sums and merged results travel as f32."""
        total = 0
        for other in set(range(len(homes))) - {rank}:
            of_message = computed[other // groups][name] & homes[rank][name]
            several = any((of_message & team[name]).any() for at, team in enumerate(computed) if at != other // groups)
            total += of_message.sum() * heads * (tensors * vector * (2 if several else 1) + 4 * statistics)
        return int(total)

    most = {"fwd": 0, "bwd": 0}
    for rank, home in enumerate(homes):
        team = computed[rank // groups]
        rows = int((team["rows"] & ~home["rows"]).sum()) * row_heads
        keys = int((team["keys"] & ~home["keys"]).sum()) * key_heads * 2 * vector
        forward = rows * vector + keys + given(rank, "rows", row_heads, 1, 1)
        backward = rows * (3 * vector + 4) + keys + given(rank, "rows", row_heads, 1, 0)
        backward += given(rank, "keys", key_heads, 2, 0)
        most = {"fwd": max(most["fwd"], forward), "bwd": max(most["bwd"], backward)}
    return {direction: bytes / 1e6 for direction, bytes in most.items()}


def milliseconds(value):
    return f"{value:.{2 if value < 100 else 0}f}"


def table(rows):
    """Markdown: of forward and backward."""
    known = {(row["mask"], row["size"], row["scheme"], row.get("direction")): row for row in rows}
    lines = ["| mask | tokens | one GPU | attnc | kernels of parts | received, MB | ring | Ulysses |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for size, mask in dict.fromkeys((row["size"], row["mask"]) for row in sorted(rows, key=lambda row: row["size"])):

        def both(scheme, text):
            found = [known.get((mask, size, scheme, direction)) for direction in DIRECTIONS]
            return ", ".join(text(row) if row else "-" for row in found) if any(found) else "-"

        def time_of(row):
            one = known.get((mask, size, "one", row["direction"]))
            faster = f" ({one['ms'] / row['ms']:.2f}x)" if one and one is not row else ""
            return f"{milliseconds(row['ms'])}{faster}{'' if (row['difference'] or 0) <= TOLERANCE else ' wrong!'}"

        cells = [mask, f"{size // 1024}k", both("one", time_of), both("divided", time_of),
                 both("divided", lambda row: milliseconds(row["compute_ms"]) if "compute_ms" in row else "-"),
                 both("divided", lambda row: f"{row['received_mb']:.0f}" if "received_mb" in row else "-"),
                 both("ring", time_of), both("ulysses", time_of)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attnc", default=os.environ.get("ATTN_ATTNC", "build/attnc"), type=pathlib.Path)
    parser.add_argument("--plans", type=pathlib.Path, metavar="FOLDER", required=True)
    parser.add_argument("--prepare", action="store_true", help="compile the plans that FOLDER lacks, and end")
    parser.add_argument("--target", default="h100", help="of attnc compile")
    parser.add_argument("--jobs", type=int, default=2, help="parallel compilations")
    parser.add_argument("--ranks", type=int, default=2, help="GPUs of this machine")
    parser.add_argument("--size", nargs="+", type=int, default=[32768, 131072, 524288], help="rows and keys")
    parser.add_argument("--masks", nargs="+", choices=ranks_plans.MASKS, default=list(ranks_plans.MASKS))
    parser.add_argument("--schemes", nargs="+", choices=ranks_plans.SCHEMES, default=list(ranks_plans.SCHEMES))
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--key-heads", type=int, default=8)
    parser.add_argument("--depth", type=int, default=128)
    parser.add_argument("--budget", type=float, default=0.4, help="seconds for the runs of a time; at least one run")
    parser.add_argument("--most-seconds", type=float, default=240)
    parser.add_argument("--patience", type=float, default=60, help="seconds after which processes hang")
    parser.add_argument("--no-profile", action="store_true", help="without the share of the parts' kernels")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.json")
    return parser.parse_args()


def main():
    options = parse()
    cases = [ranks_plans.Case(mask, size, options.heads, options.key_heads, options.depth, options.ranks)
             for size in options.size for mask in options.masks]
    cases.sort(key=lambda case: case.mask not in FIRST)
    options.plans.mkdir(parents=True, exist_ok=True)
    if options.prepare:
        return 1 if ranks_plans.prepare(options, cases) else 0
    todo = [(case, scheme) for case in cases for scheme in options.schemes]
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, pathlib.Path(folder), todo)
    for case in cases:
        megabytes = received(options, case)
        for row in found["rows"]:
            if (row["mask"], row["size"], row["scheme"]) == (case.mask, case.size, "divided") and megabytes:
                row["received_mb"] = megabytes.get(row.get("direction"))
    if options.out:
        results.save(options.out, found)
    print(f"\nms forward, backward (times as fast as one GPU), {options.ranks} x {found.get('gpu', '?')}\n")
    print(table(found["rows"]))
    return 0 if any("ms" in row for row in found["rows"]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
