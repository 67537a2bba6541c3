"""check: text with carets, JSON with the same content, several specs."""
import json

import attnc
from attnc import NOOP, SPECS

BAD = """attention x(window = 4) {
  dims    B = 1, Hq = 2, Hkv = 1, Sq = 16, Skv = 24, D = 64;
  mask    q_idx - kv_idx < windw;
  score   score * ;
  outputs o;
}
"""

ATTENTION = "attention x {{ dims B = 1, Hq = 4, Sq = 64, D = 64; {} }}"


class Diagnostics(attnc.Case):
    def test_text_goes_to_standard_error(self):
        process = self.attnc("check", "-", stdin=BAD.replace("score * ", "score + 1.0"), code=1)
        self.assertEqual(process.stdout, "")
        self.assertIn("--> <stdin>:3:28", process.stderr)
        self.assertIn("^^^^^", process.stderr)

    def test_json(self):
        path = self.write("x.attn", BAD)
        process = self.attnc("check", path, "--format", "json", code=1)
        self.assertEqual(process.stderr, "")
        entry, = json.loads(process.stdout)["specs"]
        self.assertEqual((entry["file"], entry["ok"]), (str(path), False))
        self.assertGreater(entry["errors"], 0)
        for diagnostic in entry["diagnostics"]:
            self.assertEqual(diagnostic["file"], str(path))
            self.assertGreater(diagnostic["line"], 0)

    def test_several(self):
        good, bad = self.write("good.attn", NOOP), self.write("bad.attn", BAD)
        process = self.attnc("check", good, bad, SPECS / "causal.attn", code=1)
        self.assertEqual(len(process.stdout.splitlines()), 2)
        entries = json.loads(
            self.attnc("check", good, bad, "--format", "json", code=1).stdout)["specs"]
        self.assertEqual([entry["ok"] for entry in entries], [True, False])

    def test_a_blank_line_stands_between_files(self):
        names = [self.write(f"{i}.attn", BAD.replace("score * ", "score + 1.0")) for i in range(3)]
        text = self.attnc("check", *names, self.folder / "none.attn", code=4).stderr
        parts = text.split("\n\n")
        self.assertEqual([part.splitlines()[0] for part in parts[:3]],
                         ["error[E0201]: unknown name `windw`"] * 3)
        self.assertIn("none.attn", parts[3])
        self.assertEqual(len(parts), 4)

    def test_a_missing_file_does_not_hide_the_others(self):
        bad = self.write("bad.attn", BAD)
        process = self.attnc("check", self.folder / "none.attn", bad, code=4)
        self.assertIn("none.attn", process.stderr)
        self.assertIn("error[E", process.stderr)

    def test_every_shipped_spec_is_right(self):
        specs = sorted(SPECS.glob("*.attn"))
        self.assertGreaterEqual(len(specs), 20)
        process = self.attnc("check", *specs)
        self.assertEqual(process.stderr, f"{len(specs)} specs: {len(specs)} ok\n")
        self.assertEqual(len(process.stdout.splitlines()), len(specs))

    def test_warnings_are_denied_when_asked_for(self):
        text = ATTENTION.format("mask q_idx < kv_idx && kv_idx < q_idx;")
        process = self.attnc("check", "-", stdin=text)
        self.assertIn("warning[W0540]", process.stderr)
        self.assertIn("ok: ", process.stdout)
        process = self.attnc("check", "-", "--deny", "warnings", stdin=text, code=1)
        self.assertIn("warning[W0540]", process.stderr)
        self.assertIn("warnings are treated as errors", process.stderr)
        self.assertEqual(process.stdout, "")
        path = self.write("x.attn", text)
        entry, = json.loads(self.attnc("check", path, "--deny", "warnings", "--format", "json",
                                       code=1).stdout)["specs"]
        self.assertEqual((entry["ok"], entry["errors"]), (False, 0))
        self.attnc("check", "-", "--deny", "everything", stdin=text, code=2)
        for command in (["compile", path, "--target", "h200", "-o", self.folder / "x.attnplan"],
                        ["explain", path], ["run", path, "--backend", "reference"],
                        ["support", path, "--target", "h200", "--tier", "rules"]):
            self.assertIn("warnings are treated as errors",
                          self.attnc(*command, "--deny", "warnings", code=1).stderr)
        self.assertFalse((self.folder / "x.attnplan").exists())

    def test_a_check_that_was_stopped_says_so(self):
        masks = "".join(f"mask q_idx * {1000000 + i} != 3; " for i in range(3000))
        path = self.write("many.attn", "attention many { dims B = 1, Hq = 1, Sq = 8192, D = 64; "
                          + masks + "}")
        process = self.attnc("check", path)
        self.assertEqual(process.stderr.count("warning[W0342]"), 20)
        self.assertIn("\n  stopped   ", process.stdout)
        entry, = json.loads(self.attnc("check", path, "--format", "json").stdout)["specs"]
        self.assertTrue(entry["ok"] and entry["stopped"])

    def test_a_check_that_found_nothing_says_so_when_asked(self):
        path = self.write("decoder.attn", """attention decoder(buckets = 32, distance = 128) {
  dims B = 8, Hq = 12, Sq = 512, D = 64;
  learn table: f32[buckets, Hq];
  fn bucket(q_idx, kv_idx) {
      n = max(q_idx - kv_idx, 0)
      exact = buckets // 2
      large = exact + int(log(max(n, 1) / exact) / log(distance / exact) * (buckets - exact))
      return where(n < exact, n, min(large, buckets - 1))
  }
  score score + table[bucket(q_idx, kv_idx), h];
  mask q_idx >= kv_idx;
}
""")
        self.assertNotIn("stopped", self.attnc("check", path).stdout)
        self.assertIn("stopped at its work limit", self.attnc("check", path, "--verbose").stderr)

    def test_a_warning_of_all_sizes_is_said_once(self):
        path = self.write("sizes.attn", """attention sizes {
  dims B = 1, Hq = 1, Sq = {64, 128, 4096, 8192}, D = 64;
  let unused = kv_idx + 1;
  mask q_idx * 1000000 >= kv_idx;
}
""")
        process = self.attnc("check", path)
        self.assertEqual(process.stderr.count("warning[W0342]"), 1)
        self.assertIn("(with Sq=4096; similar with 1 other size)", process.stderr)
        self.assertEqual(process.stderr.count("warning[W0201]"), 1)
        self.assertEqual(process.stderr.count("(with "), 1, "the other warning holds for all sizes")
        self.assertNotIn("stopped", process.stdout)

    def test_what_compile_refuses_check_refuses(self):
        for clauses in ("tensor slopes: f32[2]; score score + slopes[h];",
                        "tensor t: i32[B, Skv]; mask t[q_idx, b] == kv_idx;",
                        "tensor t: f32[Hq, Sq, Skv]; score score + t[h, q_idx, kv_idx + 1];",
                        "score score + log(-1.0);"):
            path = self.write("x.attn", ATTENTION.format(clauses))
            said = self.attnc("check", path, code=1).stderr
            self.assertIn("error[E034", said)
            process = self.attnc("compile", path, "--target", "h200", "-o", self.folder / "x.attnplan",
                                 code=1)
            self.assertEqual(process.stderr, said)

    def test_bindings(self):
        path = self.write("x.attn", NOOP)
        self.assertIn("Sq=77", self.attnc("check", path, "--bind", "Sq=77").stdout)
        self.assertIn("error[E0601]", self.attnc("check", path, "--bind", "Z=1", code=1).stderr)


if __name__ == "__main__":
    attnc.main()
