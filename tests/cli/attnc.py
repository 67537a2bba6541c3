"""Helpers of the command-line tests: running attnc, temporary folders, golden files."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ATTNC = os.environ["ATTNC"]
SOURCE = pathlib.Path(os.environ["ATTN_SOURCE_DIR"])
SPECS = SOURCE / "specs"
GOLDEN = SOURCE / "tests" / "cli" / "golden"
SKIPPED = 77  # exit code for a skipped test (ctest)

NOOP = """attention noop {
  dims    B = 1, Hq = 2, Hkv = 1, Sq = 16, Skv = 24, D = 64;
  dtype   bf16;
  layout  bshd;
  outputs o, lse;
}
"""


def run(*arguments, stdin="", folder=None):
    return subprocess.run([ATTNC, *map(str, arguments)], input=stdin, capture_output=True,
                          text=True, timeout=1800, check=False, cwd=folder)


def beside(name):
    """Path of another program of the same build, such as an example."""
    return pathlib.Path(ATTNC).with_name(name)


def not_lowered(target):
    """The specs without a plan for the target, by tests/conformance/not_lowered.txt. STAGE may name
    targets: cudnn:a100,l40s."""
    lines = (SOURCE / "tests" / "conformance" / "not_lowered.txt").read_text().splitlines()
    entries = [line.split()[:2] for line in lines if line and not line.startswith("#")]
    return {name for name, stage in entries
            if ":" not in stage or target in stage.partition(":")[2].split(",")}


class Case(unittest.TestCase):
    """Base class. Each test has an empty folder, self.folder, and an empty plan cache."""

    maxDiff = None

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        os.environ["ATTN_CACHE_DIR"] = str(self.folder / "cache")

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def refusing_target(self):
        """Properties of a GPU too old for cuDNN's attention kernels."""
        text = run("target", "show", "h200").stdout
        return self.write("old.json", text.replace('"deviceVer": 900', '"deviceVer": 700'))

    def attnc(self, *arguments, code=0, **how):
        """Runs attnc and checks its exit code. Returns the process."""
        process = run(*arguments, **how)
        self.assertEqual(process.returncode, code,
                         f"attnc {arguments}\n{process.stdout}\n{process.stderr}")
        return process

    def attnc_json(self, *arguments, **how):
        return json.loads(self.attnc(*arguments, "--format", "json", **how).stdout)

    def compile(self, spec, *arguments, target="h200"):
        """Compiles a spec, given as text or path, by cuDNN's engine unless the arguments name another.
        Returns the plan file."""
        if not isinstance(spec, pathlib.Path):
            spec = self.write("spec.attn", spec)
        plan = self.folder / "spec.attnplan"
        if not {"--engine", "--strategy", "--allow-unfused"} & set(arguments):
            arguments += ("--engine", "cudnn")
        self.attnc("compile", spec, "--target", target, "-o", plan, *arguments)
        return plan

    def expect_golden(self, name, actual):
        """Compares with tests/cli/golden/NAME, or rewrites it with ATTN_UPDATE_GOLDEN=1."""
        path = GOLDEN / name
        if os.environ.get("ATTN_UPDATE_GOLDEN") == "1":
            path.write_text(actual, encoding="utf-8")
        self.assertEqual(path.read_text(encoding="utf-8"), actual, f"differs from {path}")


def device():
    """The local GPU: `found`, and if so `name` and `sm`."""
    return json.loads(run("version", "--format", "json").stdout)["device"]


def has_gpu():
    return device()["found"]


def main():
    unittest.main(verbosity=2)


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)
