#!/usr/bin/env python3
"""Compares the reference of keys and values of 8 bits beside queries of 16 with numpy.

    cache_test.py ATTNC
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cache  # noqa: E402
import fp8  # noqa: E402

ATTNC = sys.argv.pop(1)
B, HQ, HKV, SQ, SKV, DQK, DV = 2, 10, 2, 31, 67, 40, 24
LENGTHS = numpy.array([67, 0])


def rounded(dtype, x):
    """Values as a cache of the type holds them."""
    if dtype == "i8":
        return numpy.clip(numpy.round(32 * x), -128, 127).astype(numpy.int8)
    return fp8.round_to(dtype, x)


class Cache(unittest.TestCase):
    def run_spec(self, spec, tensors, error=None):
        """o and lse of the reference, which rounds no result."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "c.attn").write_text(spec, encoding="utf-8")
            command = [ATTNC, "run", folder / "c.attn", "--backend", "reference", "--unrounded"]
            for name, value in tensors.items():
                numpy.save(folder / f"{name}.npy", value)
                command += ["--in", f"{name}=@{folder / name}.npy"]
            for name in ("o", "lse"):
                command += ["--out", f"{name}={folder / name}_out.npy"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            if error is not None:
                self.assertIn(error, done.stderr)
                return None
            self.assertEqual(done.returncode, 0, done.stderr)
            return [numpy.load(folder / f"{name}_out.npy") for name in ("o", "lse")]

    def spec(self, way, k, v, layout="bshd"):
        return f"""attention c {{
          dims B = {B}, Hq = {HQ}, Hkv = {HKV}, Sq = {SQ}, Skv = {SKV}, Dqk = {DQK}, Dv = {DV};
          dtype bf16, k: {k}, v: {v}; layout {layout}; quantize kv({way}); lengths kv;
          mask q_idx + 36 >= kv_idx; outputs o, lse;
        }}"""

    def inputs(self, way, k, v):
        rng = numpy.random.default_rng(8)
        shape = cache.shape(way, B, HKV, SKV)
        least = 1 / 64 if "i8" in (k, v) else 0.5
        return {
            "q": rng.normal(size=(B, HQ, SQ, DQK)),
            "k": rounded(k, rng.normal(size=(B, HKV, SKV, DQK))),
            "v": rounded(v, rng.normal(size=(B, HKV, SKV, DV))),
            "k_scale": rng.uniform(least, 4 * least, size=shape),
            "v_scale": rng.uniform(least, 4 * least, size=shape),
            "lengths_kv": LENGTHS.astype(numpy.int32),
        }

    def expected(self, way, inputs):
        k, v = (
            numpy.repeat(inputs[name] * cache.scales(way, inputs[f"{name}_scale"]), HQ // HKV, axis=1) for name in "kv"
        )
        s = numpy.einsum("bhqd,bhkd->bhqk", inputs["q"], k) / DQK**0.5
        column = numpy.arange(SKV)
        visible = (numpy.arange(SQ)[:, None] + 36 >= column) & (column < LENGTHS[:, None, None, None])
        s = numpy.where(visible, s, -numpy.inf)
        largest = s.max(axis=-1, keepdims=True)
        w = numpy.exp(s - numpy.where(numpy.isneginf(largest), 0, largest))
        total = w.sum(axis=-1, keepdims=True)
        o = numpy.einsum("bhqk,bhkd->bhqd", w / numpy.where(total == 0, 1, total), v)
        with numpy.errstate(divide="ignore"):
            return o, (largest + numpy.log(total))[..., 0]

    def test_each_way_and_type(self):
        for way in cache.AXES:
            for k, v in (("e4m3", "e4m3"), ("e5m2", "i8"), ("i8", "e5m2")):
                with self.subTest(way=way, k=k, v=v):
                    inputs = self.inputs(way, k, v)
                    o, lse = self.run_spec(self.spec(way, k, v), inputs)
                    expected_o, expected_lse = self.expected(way, inputs)
                    numpy.testing.assert_allclose(o, expected_o, atol=1e-11)
                    numpy.testing.assert_allclose(lse, expected_lse, atol=1e-11)

    def test_files_are_the_same_for_all_layouts(self):
        inputs = self.inputs("token_head", "e4m3", "e4m3")
        of_rows, _ = self.run_spec(self.spec("token_head", "e4m3", "e4m3"), inputs)
        of_pages, _ = self.run_spec(
            self.spec("token_head", "e4m3", "e4m3", "k: paged(page = 16), v: paged(page = 16)"), inputs
        )
        numpy.testing.assert_array_equal(of_rows, of_pages)

    def test_scales_are_positive(self):
        inputs = self.inputs("head", "e4m3", "e4m3")
        inputs["v_scale"][1] = 0
        self.run_spec(self.spec("head", "e4m3", "e4m3"), inputs, "v_scale: 0 is not positive and finite")


if __name__ == "__main__":
    unittest.main()
