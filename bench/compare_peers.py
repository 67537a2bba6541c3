#!/usr/bin/env python3
"""Times the plans of bench/variants and other libraries' attentions in one run, on the same shapes.

    python3 bench/compare_peers.py [--shape 4,32,8,4096,128 ...] [--rows NAME ...] [--plans FOLDER]
        [--attnc build/attnc] [--runs 15] [--no-backward] [--out FOLDER|FILE.json] [--resume]

Needs a GPU. Uses the plans compiled by plans.py, or compiles them first. A variant is measured without
interruption, so that all of its times are taken at the same clocks: ours forward, peers forward, ours
backward, peers backward. Peers that cannot be imported are reported as absent; a peer whose tensors
differ from FlexAttention's is an error and has no time. Results are written after each row, to
FOLDER/GPU-cudnnVERSION-SHAPE.json; --resume skips the rows that the file has from a run with the same
versions, for example after a peer broke the GPU's context.
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import flex_mods
import peers
import plans
import results

SHORT = {"forward": "fwd", "backward": "bwd"}


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


class Peers:
    """The available peers, on the tensors of one shape."""

    def __init__(self, options, shape, missing):
        self.options = options
        self.shape = shape
        self.names = [name for name in peers.PEERS if name not in missing]
        self.subjects = {}
        if self.names:
            self.inputs = peers.Inputs(shape)
            self.tensors = flex_mods.captured(shape, "cuda")
            self.mods = flex_mods.mods(self.tensors)

    def begin(self, variant):
        """Creates the variant's attentions. Returns {peer: why it failed}."""
        self.subjects, errors = {}, {}
        case = peers.Case(variant, *self.mods[variant], self.shape, self.tensors) if self.names else None
        for name in self.names:
            try:
                attention = peers.PEERS[name][1](case)
                if attention:
                    self.subjects[name] = peers.Subject(attention, self.inputs)
            except Exception as error:  # a peer's failure is a result
                errors[name] = first_line(error)
        return errors

    def time(self, direction, row):
        expected = None
        for name, subject in list(self.subjects.items()):
            try:
                call = subject.call(direction)
                actual = call()
                if name == peers.REFERENCE:
                    expected = actual
                self.check(actual, expected)
                row["peers"][name] = round(peers.milliseconds(call, self.options.runs), 5)
            except Exception as error:
                row["errors"][name] = first_line(error)

    def check(self, actual, expected):
        if expected is None:
            raise RuntimeError(f"there are no tensors of {peers.REFERENCE} to compare with")
        difference = peers.largest_difference(actual, expected)
        if not difference <= peers.TOLERANCE:
            raise RuntimeError(f"wrong: differs by {difference:.1e} from {peers.REFERENCE}")

    def end(self):
        self.subjects = {}
        if self.names:
            peers.forget_compiled()


def say(row):
    times = {"ours": row["ours_ms"], **row["peers"]} if "ours_ms" in row else row["peers"]
    words = [f"{name} {ms:.4f}" for name, ms in times.items()]
    words += [f"{name}: {why}" for name, why in row["errors"].items()]
    print(f"{row['variant']:20} {row['direction']:9} {row['seconds']:4.1f} s ", "  ".join(words),
          flush=True)


def time_variant(variant, directions, ours, others):
    """Yields the rows of a variant, each as soon as it is measured."""
    begin = time.monotonic()
    errors = others.begin(variant)
    for direction in directions:
        row = {"variant": variant, "direction": direction, "form": None, "peers": {},
               "errors": dict(errors)}
        ours.time(variant, direction, row)
        others.time(direction, row)
        row["seconds"] = round(time.monotonic() - begin, 1)
        begin = time.monotonic()
        say(row)
        yield row
    others.end()


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


def compare(options, found, shape, folder):
    found = found | {"shape": shape, "rows": []}
    ours, others = Ours(options, shape, folder), Peers(options, shape, found["absent"])
    directions = results.DIRECTIONS[: 1 if options.no_backward else 2]
    path = out_path(options, found)
    if options.resume:
        found["rows"] = rows_before(path, found)
    measured = set(map(results.key, found["rows"]))
    for variant in options.rows:
        left = [direction for direction in directions if (variant, direction) not in measured]
        for row in time_variant(variant, left, ours, others) if left else ():
            found["rows"].append(row)
            results.save(path, found)
            if any("CUDA error" in why for why in row["errors"].values()):
                raise SystemExit(f"{variant}: a peer broke this process's GPU context; run the same "
                                 "command with --resume to measure the remaining rows")
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


def main():
    options = parse()
    options.attnc = options.attnc.resolve()
    options.target = "native"
    found = surroundings(options)
    for name, reason in found["absent"].items():
        print(f"absent: {name} ({first_line(reason)})")
    with tempfile.TemporaryDirectory() as temporary:
        for shape in options.shape:
            folder = (options.plans or pathlib.Path(temporary)) / results.shape_name(shape)
            if not options.plans:
                plans.compile_shape(options, shape, folder)
            compare(options, found, shape, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
