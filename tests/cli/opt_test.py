"""opt: runs passes on a spec or on IR text, and prints IR that can be read again."""
import attnc
from attnc import SPECS

BLOCKS = "attention a { dims B = 1, Hq = 2, Sq = 512, D = 64; mask q_idx // 64 == kv_idx // 64; }"


class Opt(attnc.Case):
    def test_a_spec_becomes_ir_text_that_reads_back(self):
        for name in ("causal", "gemma2_local", "gpt_oss"):
            text = self.attnc("opt", SPECS / f"{name}.attn").stdout
            again = self.attnc("opt", self.write("x.ir", text)).stdout
            self.assertEqual(again, text)

    def test_passes_run_in_order(self):
        path = self.write("a.attn", BLOCKS)
        plain = self.attnc("opt", path).stdout
        banded = self.attnc("opt", path, "--pass", "bounding_band").stdout
        self.assertEqual(plain.count("mask "), 1)
        self.assertEqual(banded.count("mask "), 3)
        both = self.attnc("opt", path, "--pass", "bounding_band,reals").stdout
        one_by_one = self.attnc("opt", self.write("b.ir", banded), "--pass", "reals").stdout
        self.assertEqual(both, one_by_one)
        backward = self.attnc("opt", path, "--pass", "bounding_band", "--backward").stdout
        self.assertEqual(backward, plain)

    def test_each_and_time(self):
        path = self.write("a.attn", BLOCKS)
        process = self.attnc("opt", path, "--pass", "bounding_band,redundant", "--each", "--time")
        self.assertEqual([line for line in process.stdout.splitlines() if line.startswith("//")],
                         ["// after bounding_band", "// after redundant"])
        self.assertEqual([line.split()[0] for line in process.stderr.splitlines()],
                         ["bounding_band", "redundant"])

    def test_bad_input(self):
        path = self.write("bad.ir", "attention a {\n  scale %7\n}\n")
        self.assertIn("line", self.attnc("opt", path, code=2).stderr)
        self.assertIn("--pass", self.attnc("opt", path, "--pass", "none", code=2).stderr)
        self.assertIn("E0", self.attnc("opt", self.write("bad.attn", "attention {"), code=1).stderr)
