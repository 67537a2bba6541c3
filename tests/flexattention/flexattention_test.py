#!/usr/bin/env python3
"""Published FlexAttention mods give the same scores in a spec as in Python.

Each file of mods/ is evaluated by Python for every score, and its function body is pasted into a spec
unchanged. docs/flexattention.md shows each function next to an idiomatic spec, which is evaluated too.

    flexattention_test.py ATTNC
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy

from meaning import TOLERANCE, softmax
from mod import DIMS, every_mod

ATTNC = sys.argv.pop(1)
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "flexattention.md"
PAIR = re.compile(r"^```python\n(.*?)^```\n+```attn\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ERROR = re.compile(r"^\| `([^`]+;)` \| ([EW]\d{4}) \|", re.MULTILINE)


def inputs():
    """v is the identity, so that o holds the softmax weights."""
    random = numpy.random.default_rng(5)
    heads = dict(q=("Hq", "Sq"), k=("Hkv", "Skv"))
    values = {
        name: random.normal(size=(DIMS["B"], DIMS[head], DIMS[length], DIMS["Dqk"]))
        for name, (head, length) in heads.items()
    }
    identity = numpy.eye(DIMS["Skv"])
    return values | {"v": numpy.tile(identity, (DIMS["B"], DIMS["Hkv"], 1, 1))}


class FlexAttention(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.inputs = inputs()
        keys = numpy.repeat(self.inputs["k"], DIMS["Hq"] // DIMS["Hkv"], axis=1)
        self.products = self.inputs["q"] @ keys.swapaxes(2, 3) / numpy.sqrt(DIMS["Dqk"])

    def attnc(self, mod, text):
        """o and lse of the spec."""
        spec = self.folder / "mod.attn"
        spec.write_text(text, encoding="utf-8")
        command = [ATTNC, "run", str(spec), "--backend", "reference", "--unrounded"]
        for name, values in (self.inputs | mod.tensors).items():
            numpy.save(self.folder / f"{name}.npy", values)
            command += ["--in", f"{name}=@{self.folder / name}.npy"]
        for name in ("o", "lse"):
            command += ["--out", f"{name}={self.folder / name}_out.npy"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        self.assertEqual(done.returncode, 0, f"{text}\n{done.stderr}")
        return (numpy.load(self.folder / f"{name}_out.npy") for name in ("o", "lse"))

    def expect_same(self, actual, expected):
        hidden = numpy.isneginf(expected)
        numpy.testing.assert_array_equal(numpy.isneginf(actual), hidden)
        actual, expected = (numpy.where(hidden, 0, values) for values in (actual, expected))
        error = numpy.abs(actual - expected).max()
        self.assertLessEqual(error, TOLERANCE * numpy.abs(expected).max())

    def expect_meaning(self, mod, text):
        scores = mod.scores(self.products)
        weights, lse = softmax(scores)
        o, actual_lse = self.attnc(mod, text)
        self.expect_same(actual_lse, lse)
        self.expect_same(o, weights)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            recovered = numpy.where(o > 0, numpy.log(o) + actual_lse[..., None], -numpy.inf)
        self.expect_same(recovered, scores)

    def test_bodies_paste_unchanged(self):
        mods = every_mod()
        self.assertGreaterEqual(len(mods), 20)
        for mod in mods:
            with self.subTest(mod.name):
                self.expect_meaning(mod, mod.pasted())

    def test_the_page_has_every_mod_and_its_specs_mean_the_same(self):
        pairs = PAIR.findall(PAGE.read_text(encoding="utf-8"))
        mods = {mod.source: mod for mod in every_mod()}
        self.assertEqual({python for python, _ in pairs}, set(mods))
        for python, clauses in pairs:
            with self.subTest(mods[python].name):
                self.expect_meaning(mods[python], mods[python].spec(clauses))

    def test_the_page_tells_the_errors_that_one_sees(self):
        rows = ERROR.findall(PAGE.read_text(encoding="utf-8"))
        self.assertGreaterEqual(len(rows), 10)
        for clause, code in rows:
            text = f"attention x {{ dims B = 2, Hq = 2, Sq = 8, D = 8; tensor doc: i32[B, Skv]; {clause} }}"
            done = subprocess.run([ATTNC, "check", "-"], input=text, capture_output=True, text=True,
                                  timeout=600, check=False)
            with self.subTest(clause):
                self.assertIn(f"[{code}]", done.stderr)


if __name__ == "__main__":
    unittest.main()
