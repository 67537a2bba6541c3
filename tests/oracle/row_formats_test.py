#!/usr/bin/env python3
"""Compares the reference of keys in rows of several types with numpy.

    row_formats_test.py ATTNC
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import row_formats  # noqa: E402

ATTNC = sys.argv.pop(1)
B, HQ, SQ, SKV, DQK, DV = 2, 6, 5, 67, 576, 512
SPEC = f"""attention rows {{
  dims B = {B}, Hq = {HQ}, Hkv = 1, Sq = {SQ}, Skv = {SKV}, Dqk = {DQK};
  dtype bf16; layout paged(page = 16, rows = fp8_ds_mla);
  values k[0..{DV}]; mask q_idx + 40 >= kv_idx; outputs o, lse;
}}"""


def attention(q, k):
    scores = numpy.einsum("bhqd,bkd->bhqk", q, k[:, 0]) / DQK**0.5
    hidden = numpy.arange(SKV) > numpy.arange(SQ)[:, None] + 40
    scores = numpy.where(hidden, -numpy.inf, scores)
    weights = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
    lse = numpy.log(weights.sum(axis=-1)) + scores.max(axis=-1)
    return numpy.einsum("bhqk,bkd->bhqd", weights / weights.sum(axis=-1, keepdims=True), k[:, 0, :, :DV]), lse


class RowFormats(unittest.TestCase):
    def run_spec(self, q, k):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "r.attn").write_text(SPEC, encoding="utf-8")
            command = [ATTNC, "run", folder / "r.attn", "--backend", "reference"]
            for name, value in (("q", q), ("k", k)):
                numpy.save(folder / f"{name}.npy", value)
                command += ["--in", f"{name}=@{folder / name}.npy"]
            for name in ("o", "lse"):
                command += ["--out", f"{name}={folder / name}_out.npy"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [numpy.load(folder / f"{name}_out.npy") for name in ("o", "lse")]

    def test_rows_are_what_they_are_stored_as(self):
        """Blocks have sizes that differ by powers of ten; some are zeros. lse is f32, o bf16."""
        rng = numpy.random.default_rng(3)
        q = row_formats.bf16(rng.normal(size=(B, HQ, SQ, DQK))).astype(numpy.float64)
        k = rng.normal(size=(B, 1, SKV, DQK))
        k[:, :, ::3, 128:256] *= 1e-3
        k[:, :, 1::3, 256:384] = 0
        k[:, :, ::5, 384:512] *= 30
        stored = row_formats.stored("fp8_ds_mla", k)
        self.assertGreater(numpy.abs(stored - k).max(), 0.1)  # so that it matters
        o, lse = self.run_spec(q, k)
        expected_o, expected_lse = attention(q, stored)
        numpy.testing.assert_allclose(lse, expected_lse, rtol=1e-6, atol=1e-6)
        numpy.testing.assert_allclose(o, expected_o, rtol=2**-8, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
