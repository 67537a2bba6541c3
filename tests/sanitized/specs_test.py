"""Runs the commands that need no cuDNN on every shipped spec, with an attnc built with address and
undefined-behaviour sanitizers. There must be no reports, including leaks. Skipped if it is not built
(.ci/build-sanitized)."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ATTNC = os.environ["ATTNC"]
SOURCE = pathlib.Path(os.environ["ATTN_SOURCE_DIR"])
LIBRARIES = sorted((SOURCE / "specs" / "lib").glob("*.attn"))
SPECS = sorted([*(SOURCE / "specs").glob("*.attn"), *(SOURCE / "bench" / "variants").glob("*.attn")])
REPORTS = ("AddressSanitizer", "LeakSanitizer", "runtime error:")
ENVIRONMENT = os.environ | {
    "ASAN_OPTIONS": "detect_leaks=1:exitcode=99:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
# Upper limits, to be small enough for the reference.
LIMITS = {"B": 1, "Sq": 64, "Skv": 256}


def attnc(*arguments, stdin=""):
    """(command, exit code, output, errors)"""
    command = [ATTNC, *map(str, arguments)]
    process = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300,
                             check=False, env=ENVIRONMENT)
    return " ".join(command[1:]), process.returncode, process.stdout, process.stderr


def small(tree):
    """--bind options for the sizes of a spec that are or may be too large for the reference. Skv = Sq is
    kept."""
    sizes = next((clause["dims"] for clause in tree["clauses"] if "dims" in clause), {})
    limits = {size: limit for size, limit in LIMITS.items() if sizes.get(size, "Sq") != "Sq"}
    return [word for size, limit in limits.items()
            if not isinstance(sizes[size], int) or sizes[size] > limit
            for word in ("--bind", f"{size}={limit}")]


def runs_of(spec, empty):
    """Runs all commands on one spec. With the empty cuDNN folder explain does not call cuDNN."""
    tree = attnc("convert", spec, "--to", "json")
    yield tree, (0,)
    yield attnc("convert", "-", "--to", "dsl", stdin=tree[2]), (0,)
    yield attnc("check", spec), (0,)
    yield attnc("fmt", "--check", spec), (0, 1)
    if spec in LIBRARIES:
        return
    yield attnc("explain", spec, "--target", "h200", "--engine", "cudnn", "--cudnn", empty), (0, 3, 4)
    yield attnc("support", spec, "--tier", "rules", "--target", "h200"), (0, 3)
    yield attnc("support", spec, "--tier", "rules", "--target", "h200", "--grad"), (0, 3)
    yield attnc("run", spec, "--backend", "reference", "--grad",
                *small(json.loads(tree[2]))), (0, 1, 2, 3)


class Sanitized(unittest.TestCase):
    def test_specs(self):
        self.assertGreater(len(SPECS), 80)
        with tempfile.TemporaryDirectory() as empty, \
                concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(lambda spec: list(runs_of(spec, empty)), [*LIBRARIES, *SPECS]))
        references = 0
        for runs in found:
            for (command, code, _, errors), codes in runs:
                with self.subTest(command):
                    self.assertFalse([word for word in REPORTS if word in errors], errors)
                    self.assertIn(code, codes, errors)
                references += command.startswith("run ") and code == 0
        self.assertGreater(references, 0.8 * len(SPECS), "too few ran with the reference")


if __name__ == "__main__":
    if not os.access(ATTNC, os.X_OK):
        print(f"skipped: {ATTNC} is not built")
        sys.exit(77)
    unittest.main(verbosity=2)
