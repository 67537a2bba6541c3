#!/usr/bin/env python3
"""Compares the reference of attention with scales of blocks with numpy.

    mxfp8_test.py ATTNC
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fp8  # noqa: E402
import mxfp8  # noqa: E402

ATTNC = sys.argv.pop(1)
B, HQ, HKV, SQ, SKV = 2, 4, 2, 70, 133
ROW = numpy.arange(SQ)[:, None]
COLUMN = numpy.arange(SKV)[None, :]
# What the scale of each tensor is for, and where copies come from.
ALONG_ROWS = {"q": False, "k": False, "v": True, "q_t": True, "k_t": True, "v_t": False, "do": False, "do_t": True}
IN_LAYOUT = {"bshd": (0, 2, 1, 3), "bhsd": (0, 1, 2, 3), "sbhd": (2, 0, 1, 3)}


class Mxfp8(unittest.TestCase):
    def run_spec(self, spec, tensors, names, *options, error=None):
        """The named outputs of the reference."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "f.attn").write_text(spec, encoding="utf-8")
            command = [ATTNC, "run", folder / "f.attn", "--backend", "reference", *options]
            for name, value in tensors.items():
                numpy.save(folder / f"{name}.npy", value)
                command += ["--in", f"{name}=@{folder / name}.npy"]
            for name in names:
                command += ["--out", f"{name}={folder / name}_out.npy"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            if error is not None:
                self.assertIn(error, done.stderr)
                return {}
            self.assertEqual(done.returncode, 0, done.stderr)
            return {name: numpy.load(folder / f"{name}_out.npy") for name in names}

    def make(self, types, depth, layout, names):
        """Inputs for the command, and what they stand for."""
        rng = numpy.random.default_rng(8)
        shapes = {"q": (B, HQ, SQ, depth[0]), "k": (B, HKV, SKV, depth[0]), "v": (B, HKV, SKV, depth[1]),
                  "d": (B, HQ, SQ, depth[1])}
        given, real = {}, {}
        for name in names:
            shape = shapes[name[0]]
            x = 2 * rng.normal(size=shape)
            dtype = types[2] if name.startswith("do") else types[0]
            if name == "do_f16":
                real[name] = mxfp8.half(types[1], x)
            else:
                scales = mxfp8.random_scales(rng, shape, ALONG_ROWS[name])
                real[name] = fp8.round_to(dtype, x) * mxfp8.spread(scales, ALONG_ROWS[name], shape)
                given[f"descale_{name}"] = mxfp8.stored(scales, ALONG_ROWS[name])
            given[name] = x.transpose(IN_LAYOUT[layout]) if name[1:] in ("_t", "o_t", "o_f16") else x
        return given, real

    def spec(self, types, depth, layout, clauses):
        return f"""attention f {{
          dims B = {B}, Hq = {HQ}, Hkv = {HKV}, Sq = {SQ}, Skv = {SKV}, Dqk = {depth[0]}, Dv = {depth[1]};
          dtype {types[0]}; layout {layout}; mask q_idx >= kv_idx - 30; {clauses}
          quantize mxfp8, o: {types[1]}, do: {types[2]}, gradients: {types[3]};
        }}"""

    def check(self, types, depth, layout):
        visible = ROW >= COLUMN - 30
        given, real = self.make(types, depth, layout, ["q", "k", "v"])
        expected = mxfp8.attention(types[0], types[1], *real.values(), visible)
        actual = self.run_spec(self.spec(types, depth, layout, "outputs o, lse, amax_o;"), given, expected)
        numpy.testing.assert_array_equal(actual["o"], expected["o"])
        self.assertGreater(numpy.unique(expected["o"]).size, 50)
        for name in ("lse", "amax_o"):
            numpy.testing.assert_allclose(actual[name], expected[name], rtol=1e-6)

        given, real = self.make(types, depth, layout, [*ALONG_ROWS, "do_f16"])
        expected = mxfp8.gradients(types, real, visible)
        spec = self.spec(types, depth, layout, "grad q, k, v;")
        actual = self.run_spec(spec, given, expected, "--direction", "bwd")
        for name in ("dq", "dk", "dv"):
            # Sums of 0 are not exact.
            numpy.testing.assert_allclose(actual[name], expected[name], rtol=0, atol=1e-14, err_msg=name)
            self.assertGreater(numpy.unique(expected[name]).size, 50)
            numpy.testing.assert_allclose(actual[f"amax_{name}"], expected[f"amax_{name}"], rtol=1e-6)

    def test_bshd(self):
        self.check(("e4m3", "bf16", "e4m3", "bf16"), (64, 32), "bshd")

    def test_heads_first_and_e5m2(self):
        self.check(("e4m3", "f16", "e5m2", "f16"), (32, 64), "bhsd")

    def test_rows_first_and_tiles_of_columns(self):
        self.check(("e5m2", "bf16", "e4m3", "f16"), (160, 32), "sbhd")

    def test_copies_that_are_not_given_are_made(self):
        types, depth = ("e4m3", "bf16", "e4m3", "bf16"), (64, 32)
        given, real = self.make(types, depth, "sbhd", ["q", "k", "v", "do"])
        spec = self.spec(types, depth, "sbhd", "grad q, k, v;")
        actual = self.run_spec(spec, given, ["dq", "dk", "dv"], "--direction", "bwd")
        whole = {**real, "q_t": real["q"], "k_t": real["k"], "v_t": real["v"], "do_t": real["do"]}
        expected = mxfp8.gradients(types, {**whole, "do_f16": real["do"]}, ROW >= COLUMN - 30)
        for name, value in actual.items():  # up to the rounding of the copies, 1/16 of an element
            error = numpy.linalg.norm(value - expected[name]) / numpy.linalg.norm(expected[name])
            self.assertLess(error, 0.06, name)

    def test_a_scale_of_nan_makes_its_block_nan(self):
        types, depth = ("e4m3", "bf16", "e4m3", "bf16"), (64, 32)
        given, _ = self.make(types, depth, "bshd", ["q", "k", "v"])
        given["descale_q"][0, 0, 0, 0] = numpy.nan  # of row 0, the first 32 elements
        lse = self.run_spec(self.spec(types, depth, "bshd", "outputs o, lse;"), given, ["lse"])["lse"]
        self.assertTrue(numpy.isnan(lse[0, 0, 0]))
        self.assertEqual(numpy.isnan(lse).sum(), 1)

    def test_scales_are_powers_of_two_of_the_declared_shape(self):
        types, depth = ("e4m3", "bf16", "e4m3", "bf16"), (64, 32)
        given, _ = self.make(types, depth, "bshd", ["q", "k", "v"])
        spec = self.spec(types, depth, "bshd", "outputs o;")
        for value in (3, 0, -1, 2.0**-128, 2.0**128):
            wrong = {**given, "descale_k": numpy.full_like(given["descale_k"], value)}
            self.run_spec(spec, wrong, [], error="not a power of two")
        wrong = {**given, "descale_v": numpy.ones((B, HKV, 5, 32))}
        self.run_spec(spec, wrong, [], error="[2,2,8,128]")


if __name__ == "__main__":
    unittest.main()
