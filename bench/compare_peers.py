#!/usr/bin/env python3
"""Times the plans of bench/variants and other libraries' attentions in one run, on the same shapes.

    python3 bench/compare_peers.py [--shape 4,32,8,4096,128 ...] [--rows NAME ...] [--plans FOLDER]
        [--attnc build/attnc] [--jobs N] [--runs 15] [--no-backward] [--out FOLDER|FILE.json] [--resume]

Needs a GPU. Uses the plans compiled by plans.py, or compiles them first. The peers of a row are in a process
of their own, so that they compile at the same time as those of --jobs rows. Then nothing else runs while a
direction of a row is timed, ours and the peers one after another, so that all of its times are taken at the
same clocks. Peers that cannot be imported are reported as absent; a peer whose tensors differ from
FlexAttention's is an error and has no time. Results are written after each row, to
FOLDER/GPU-cudnnVERSION-SHAPE.json; --resume skips the rows that the file has from a run with the same
versions.
"""
import argparse
import concurrent.futures
import datetime
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import peers
import plans
import remote
import results

SHORT = {"forward": "fwd", "backward": "bwd"}
FIRST_CALL = 300  # seconds that one call of a peer may take, with its compilation


def attnc_json(options, *arguments):
    command = [options.attnc, *map(str, arguments), "--format", "json"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise RuntimeError(plans.error_of(process))
    return json.loads(process.stdout)


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def surroundings(options):
    """Versions, GPU and date, for the results file."""
    version = attnc_json(options, "version")
    if not version["device"]["found"]:
        raise SystemExit("compare_peers.py needs a GPU: " + version["device"]["why"])
    found = {
        "gpu": version["device"]["name"],
        "cudnn": version["cudnn"]["version"],
        "torch": None,
        "torch_cudnn": None,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "runs": options.runs,
        "absent": peers.absent(),
    }
    if len(found["absent"]) < len(peers.PEERS):
        import torch

        found |= {"torch": torch.__version__, "torch_cudnn": torch.backends.cudnn.version()}
    return found


class Ours:
    """The plans of a shape, and their times."""

    def __init__(self, options, shape, folder):
        self.options = options
        self.shape = shape
        self.folder = folder
        if not (folder / plans.LIST).exists():
            raise SystemExit(f"{folder} has no {plans.LIST}: run plans.py first")
        entries = results.load(folder / plans.LIST)["plans"]
        self.entries = {entry["variant"]: entry for entry in entries}

    def time(self, variant, direction, row):
        entry = self.entries[variant]
        if direction not in entry["forms"]:
            row["errors"]["ours"] = first_line(entry["errors"][direction])
            return
        row["form"] = entry["forms"][direction]
        try:
            timed = attnc_json(self.options, "bench", self.folder / entry["file"], "--device-only",
                               "--direction", SHORT[direction], "--iterations", self.options.runs)
            row["ours_ms"] = timed["rows"][0]["device"]["median_ms"]
        except RuntimeError as error:
            row["errors"]["ours"] = first_line(error)


def works(process):
    try:
        process.call("synchronize", limit=FIRST_CALL)
    except RuntimeError:
        return False
    return True


def take(idle):
    """One of the idle processes for peers that works, or a new one. Threads call this at the same time."""
    while True:
        try:
            process = idle.pop()
        except IndexError:
            return remote.Remote(peers.Attentions)
        if works(process):
            return process
        process.stop()


class Row:
    """The peers of a variant, in a process of their own, and our plan."""

    def __init__(self, variant, names, ours, idle):
        self.variant = variant
        self.names = list(names)  # the peers that can express the variant, and broke no process
        self.broke = {}  # the errors of those that broke one
        self.errors = {}  # those of this direction
        self.times = {}  # of this direction, in ms
        self.ready = []  # the peers that made their first call in this process
        self.ours = ours
        self.idle = idle
        self.process = None
        self.prepared = 0.0  # seconds that prepare() took

    def prepare(self, direction):
        """Makes the first calls, in which peers compile. A peer that breaks the process or its GPU context
        is left out of the next process."""
        begin = time.monotonic()
        self.errors, self.times = dict(self.broke), {}
        if self.process and not works(self.process):
            self.leave()
        self.make_ready(direction)
        self.prepared = time.monotonic() - begin

    def make_ready(self, direction):
        self.ready = []
        while self.left() and not self.first_calls(direction):
            self.ready = []

    def left(self):
        """The peers whose first calls a process needs: those that are not timed, and what they are compared
        with."""
        return [name for name in self.names
                if name not in self.errors and (name not in self.times or name == peers.REFERENCE)]

    def first_calls(self, direction):
        """Returns whether the process can go on."""
        if not self.process:
            self.process = take(self.idle)
        row = (self.variant, self.ours.shape, self.ours.options.runs)
        for name in self.left():
            try:
                if self.process.call("prepare", row, name, direction, limit=FIRST_CALL):
                    self.ready.append(name)
                else:
                    self.names.remove(name)
            except RuntimeError as error:  # a peer's failure is a result
                if not self.goes_on(name, error):
                    return False
        return True

    def goes_on(self, name, error):
        """Notes a peer's error. Returns whether the process can go on; if not, the peer broke it."""
        self.errors[name] = first_line(error)
        if works(self.process):
            return True
        self.broke[name] = self.errors[name]
        self.names.remove(name)
        self.leave()
        return False

    def leave(self):
        self.process.stop()
        self.process = None

    def time(self, direction):
        """The row of the results file."""
        begin = time.monotonic()
        row = {"variant": self.variant, "direction": direction, "form": None,
               "peers": self.times, "errors": {}}
        self.ours.time(self.variant, direction, row)
        while not self.time_peers():
            self.make_ready(direction)
        row["errors"] |= self.errors
        row["seconds"] = round(self.prepared + time.monotonic() - begin, 1)
        say(row)
        return row

    def time_peers(self):
        """Times the peers that are ready and have no time. Returns whether the process can go on."""
        for name in self.ready:
            if name in self.times:
                continue
            try:
                self.times[name] = round(self.process.call("milliseconds", name, limit=FIRST_CALL), 5)
            except RuntimeError as error:
                if not self.goes_on(name, error):
                    return False
        return True

    def end(self):
        """Leaves the process to another row."""
        if self.process and works(self.process):
            self.idle.append(self.process)
        elif self.process:
            self.leave()


def say(row):
    times = {"ours": row["ours_ms"], **row["peers"]} if "ours_ms" in row else row["peers"]
    words = [f"{name} {ms:.4f}" for name, ms in times.items()]
    words += [f"{name}: {why}" for name, why in row["errors"].items()]
    print(f"{row['variant']:20} {row['direction']:9} {row['seconds']:4.1f} s ", "  ".join(words),
          flush=True)


def time_rows(rows, directions):
    """Yields the rows of the results file, each as soon as it is measured. All first calls are made at the
    same time; then nothing runs beside what is timed."""
    try:
        for direction in results.DIRECTIONS:
            due = [row for row in rows if direction in directions[row.variant]]
            with concurrent.futures.ThreadPoolExecutor(len(rows)) as pool:
                list(pool.map(lambda row: row.prepare(direction), due))
            for row in due:
                yield row.time(direction)
    finally:
        for row in rows:
            row.end()


def rows_before(path, found):
    """The rows of an earlier run with the same versions and shape."""
    if not path.exists():
        return []
    before = results.load(path)
    same = ("gpu", "cudnn", "torch", "runs", "absent")
    different = [name for name in same if before[name] != found[name]]
    if different or tuple(before["shape"]) != found["shape"]:
        raise SystemExit(f"--resume: {path} has a different {(different or ['shape'])[0]}")
    return before["rows"]


def out_path(options, found):
    return options.out if options.out.suffix == ".json" else options.out / results.file_name(found)


def compare(options, found, shape, folder, idle):
    found = found | {"shape": shape, "rows": []}
    path = out_path(options, found)
    if options.resume:
        found["rows"] = rows_before(path, found)
    measured = set(map(results.key, found["rows"]))
    directions = {variant: [direction for direction in results.DIRECTIONS[: 1 if options.no_backward else 2]
                            if (variant, direction) not in measured] for variant in options.rows}
    left = [variant for variant in options.rows if directions[variant]]
    names = [name for name in peers.PEERS if name not in found["absent"]]
    ours = Ours(options, shape, folder)
    for first in range(0, len(left), options.jobs):
        rows = [Row(variant, names, ours, idle) for variant in left[first : first + options.jobs]]
        for row in time_rows(rows, directions):
            found["rows"].append(row)
            results.save(path, found)
    print(path)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    plans.add_options(parser)
    parser.add_argument("--plans", type=pathlib.Path, metavar="FOLDER", help="output of plans.py")
    parser.add_argument("--runs", type=int, default=15, help="samples per time")
    parser.add_argument("--no-backward", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("bench/results"))
    options = plans.parse(parser)
    if options.out.suffix == ".json" and len(options.shape) > 1:
        parser.error("with several shapes --out must be a folder, not a file")
    return options


def start_processes(options):
    """Starts processes for peers, which import PyTorch, if it is here, while this one does."""
    if not importlib.util.find_spec("torch"):
        return []
    return [remote.Remote(peers.Attentions) for _ in options.rows[: options.jobs]]


def main():
    options = parse()
    options.attnc = options.attnc.resolve()
    options.target = "native"
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # --jobs processes compile already
    idle = start_processes(options)
    found = surroundings(options)
    for name, reason in found["absent"].items():
        print(f"absent: {name} ({first_line(reason)})")
    with tempfile.TemporaryDirectory() as temporary:
        for shape in options.shape:
            folder = (options.plans or pathlib.Path(temporary)) / results.shape_name(shape)
            if not options.plans:
                plans.compile_shape(options, shape, folder)
            compare(options, found, shape, folder, idle)
    for process in idle:
        process.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
