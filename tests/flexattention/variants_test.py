#!/usr/bin/env python3
"""The specs of bench/variants compute the same as the FlexAttention mods of bench/flex_mods.py.

Every score and mask is evaluated with the constants of the benchmark, at a size where all have an effect.

    variants_test.py ATTNC
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy

from meaning import TOLERANCE, softmax

ATTNC = sys.argv.pop(1)
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import flex_mods  # noqa: E402
import results  # noqa: E402

SHAPE = B, HQ, HKV, SIZE, DEPTH = 1, 2, 1, 1152, 4
DOC = flex_mods.DOCUMENTS * numpy.arange(SIZE) // SIZE
# The tensors of flex_mods.captured, in numpy.
TENSORS = dict(
    doc=DOC,
    slopes=numpy.exp2(-(numpy.arange(HQ) + 1.0) * 8 / HQ),
    bias_head=numpy.random.default_rng(1).normal(size=(HQ, SIZE, SIZE)),
    bias_full=numpy.random.default_rng(2).normal(size=(SIZE, SIZE)),
)
GIVEN = dict(document="doc", document_causal="doc", bias_head="bias_head", bias_full="bias_full")


class Variants(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        random = numpy.random.default_rng(3)
        self.q, self.k, self.v = (
            random.normal(size=(B, heads, SIZE, DEPTH)) for heads in (HQ, HKV, HKV)
        )

    def attnc(self, variant):
        """o and lse of the spec."""
        inputs = dict(q=self.q, k=self.k, v=self.v)
        if variant in GIVEN:
            name = GIVEN[variant].partition("_")[0]
            inputs[name] = TENSORS[GIVEN[variant]]
            if name == "doc":
                inputs[name] = inputs[name].astype(numpy.int32)
        command = [ATTNC, "run", str(results.VARIANTS / f"{variant}.attn"), "--unrounded",
                   "--backend", "reference", *results.bindings(SHAPE)]
        for name, values in inputs.items():
            numpy.save(self.folder / f"{name}.npy", values)
            command += ["--in", f"{name}=@{self.folder / name}.npy"]
        for name in ("o", "lse"):
            command += ["--out", f"{name}={self.folder / name}_out.npy"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return (numpy.load(self.folder / f"{name}_out.npy") for name in ("o", "lse"))

    def scores(self, score, mask):
        """[B, Hq, Sq, Skv], -inf where hidden."""
        b, h, q, k = numpy.ogrid[:B, :HQ, :SIZE, :SIZE]
        values = self.q @ self.k.swapaxes(2, 3) / numpy.sqrt(DEPTH)
        if score:
            values = score(values, b, h, q, k)
        return numpy.where(mask(b, h, q, k), values, -numpy.inf) if mask else values

    def expect_close(self, actual, expected):
        self.assertEqual(actual.shape, expected.shape)
        self.assertLessEqual(abs(actual - expected).max(), TOLERANCE * abs(expected).max())

    def test_the_lists_are_one(self):
        files = {path.stem for path in results.VARIANTS.glob("*.attn")}
        self.assertEqual(set(results.ORDER), files)
        self.assertEqual(set(flex_mods.mods(TENSORS)), files)

    def test_the_specs_mean_what_flexattention_is_given(self):
        for variant, mods in flex_mods.mods(TENSORS).items():
            with self.subTest(variant):
                weights, lse = softmax(self.scores(*mods))
                o, actual_lse = self.attnc(variant)
                self.expect_close(actual_lse, lse)
                self.expect_close(o, weights @ self.v)


if __name__ == "__main__":
    unittest.main()
