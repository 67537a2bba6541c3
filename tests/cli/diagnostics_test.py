"""check: texts with carets, JSON with the same content, several specs at once."""
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
        self.assertEqual(process.stderr, "")
        self.assertEqual(len(process.stdout.splitlines()), len(specs))

    def test_bindings(self):
        path = self.write("x.attn", NOOP)
        self.assertIn("Sq=77", self.attnc("check", path, "--bind", "Sq=77").stdout)
        self.assertIn("error[E0601]", self.attnc("check", path, "--bind", "Z=1", code=1).stderr)


if __name__ == "__main__":
    attnc.main()
