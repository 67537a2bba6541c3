#!/usr/bin/env python3
"""Compares the reference of 8-bit attention with numpy.

    fp8_test.py ATTNC
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fp8  # noqa: E402

ATTNC = sys.argv.pop(1)
B, HQ, HKV, SQ, SKV, D = 2, 4, 2, 37, 53, 32
SCALES = {
    "descale_q": 0.5,
    "descale_k": 1.25,
    "descale_v": 0.75,
    "descale_s": 1 / 256,
    "scale_s": 256.0,
    "scale_o": 96.0,
}
BACKWARD = {
    "descale_o": 1 / 96,
    "descale_do": 0.5,
    "descale_dp": 1 / 64,
    "scale_dp": 64.0,
    "scale_dq": 32.0,
    "scale_dk": 16.0,
    "scale_dv": 4.0,
}
ROW = numpy.arange(SQ)[:, None]
COLUMN = numpy.arange(SKV)[None, :]


def hidden_unless(visible):
    return lambda s: numpy.where(visible, s, -numpy.inf)


class Fp8(unittest.TestCase):
    def check(self, clauses, modify, dtype="e4m3", o="", scales=None, tensors=None, **more):
        """Runs a spec with these clauses, and compares all outputs."""
        rng = numpy.random.default_rng(5)
        scales = {**SCALES, **(scales or {})}
        if o == "bf16":
            scales.pop("scale_o")
        inputs = {
            "q": 3 * rng.normal(size=(B, HQ, SQ, D)),
            "k": 3 * rng.normal(size=(B, HKV, SKV, D)),
            "v": 3 * rng.normal(size=(B, HKV, SKV, D)),
        }
        typed = f", o: {o}" if o else ""
        spec = f"""attention f {{
          dims B = {B}, Hq = {HQ}, Hkv = {HKV}, Sq = {SQ}, Skv = {SKV}, D = {D};
          dtype {dtype}; quantize per_tensor{typed}; {clauses}
          outputs o, lse, amax_s, amax_o;
        }}"""
        expected = fp8.attention(dtype, o or dtype, *inputs.values(), scales, modify, **more)
        actual = self.run_spec(spec, {**inputs, **(tensors or {})}, scales, expected)
        numpy.testing.assert_array_equal(actual["o"], expected["o"])
        self.assertGreater(numpy.unique(expected["o"]).size, 50)
        for name in ("lse", "amax_s", "amax_o"):
            numpy.testing.assert_allclose(actual[name], expected[name], rtol=1e-6)
        return expected

    def run_spec(self, spec, tensors, scales, names, *options):
        """The named outputs of the reference."""
        files = {**tensors, **{name: numpy.array([x]) for name, x in scales.items()}}
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "f.attn").write_text(spec, encoding="utf-8")
            command = [ATTNC, "run", folder / "f.attn", "--backend", "reference", *options]
            for name, value in files.items():
                numpy.save(folder / f"{name}.npy", value)
                command += ["--in", f"{name}=@{folder / name}.npy"]
            for name in names:
                command += ["--out", f"{name}={folder / name}_out.npy"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            self.assertEqual(done.returncode, 0, done.stderr)
            return {name: numpy.load(folder / f"{name}_out.npy") for name in names}

    def check_gradients(self, types):
        """Compares the gradients of a causal attention. `types`: of q, k, v; o; do; gradients."""
        rng = numpy.random.default_rng(6)
        shapes = {"q": (HQ, SQ), "k": (HKV, SKV), "v": (HKV, SKV), "do": (HQ, SQ)}
        inputs = {name: 3 * rng.normal(size=(B, *shape, D)) for name, shape in shapes.items()}
        scales = {**SCALES, **BACKWARD}
        if types[1] == "bf16":
            del scales["scale_o"], scales["descale_o"]
        if types[3] == "bf16":
            del scales["scale_dq"], scales["scale_dk"], scales["scale_dv"]
        spec = f"""attention f {{
          dims B = {B}, Hq = {HQ}, Hkv = {HKV}, Sq = {SQ}, Skv = {SKV}, D = {D};
          dtype {types[0]}; quantize per_tensor, o: {types[1]}, do: {types[2]}, gradients: {types[3]};
          mask q_idx >= kv_idx; grad q, k, v;
        }}"""
        expected = fp8.gradients(types, *inputs.values(), scales, ROW >= COLUMN)
        actual = self.run_spec(spec, inputs, scales, expected, "--direction", "bwd")
        for name in ("dq", "dk", "dv"):
            numpy.testing.assert_array_equal(actual[name], expected[name], name)
            self.assertGreater(numpy.unique(expected[name]).size, 50)
        for name in ("amax_dp", "amax_dq", "amax_dk", "amax_dv"):
            numpy.testing.assert_allclose(actual[name], expected[name], rtol=1e-6)

    def test_gradients(self):
        self.check_gradients(("e4m3", "e4m3", "e4m3", "e4m3"))
        self.check_gradients(("e4m3", "e4m3", "e5m2", "e5m2"))
        self.check_gradients(("e4m3", "bf16", "e5m2", "bf16"))

    def test_noop(self):
        self.check("", lambda s: s)

    def test_causal(self):
        self.check("mask q_idx >= kv_idx;", hidden_unless(ROW >= COLUMN))

    def test_window_and_softcap(self):
        visible = (ROW >= COLUMN) & (ROW - COLUMN < 9)
        hide = hidden_unless(visible)
        self.check(
            "score 5 * tanh(score / 5); mask 0 <= q_idx - kv_idx < 9;", lambda s: hide(5 * numpy.tanh(s / 5))
        )

    def test_lengths(self):
        rows, keys = numpy.array([SQ, 20]), numpy.array([31, 0])
        visible = (ROW < rows[:, None, None, None]) & (COLUMN < keys[:, None, None, None])
        self.check(
            "lengths q, kv;",
            hidden_unless(visible),
            tensors={"lengths_q": rows.astype("i4"), "lengths_kv": keys.astype("i4")},
        )

    def test_sink(self):
        sinks = numpy.array([3.0, -1.0, 0.5, 9.0], dtype="f4")
        self.check("tensor t: f32[Hq]; sink t[h];", lambda s: s, tensors={"t": sinks}, sinks=sinks.astype(float))

    def test_other_types(self):
        self.check("", lambda s: s, dtype="e5m2")
        self.check("", lambda s: s, o="bf16")
        self.check("", lambda s: s, o="e5m2")

    def test_saturation(self):
        expected = self.check("", lambda s: s, scales={"scale_o": 2000.0, "scale_s": 1000.0})
        self.assertEqual(abs(expected["o"]).max(), 448)


if __name__ == "__main__":
    unittest.main()
