"""check --fix: applies the fixes of diagnostics to files and to standard input."""
import json

import attnc
from attnc import SPECS

WRONG = """# Three mistakes.
attention f(window = 4) {
  dims    B = 1, Hq = 2, Sq = 16, D = 64;
  dtyp    bf16;
  mask    q_idx - kv_idx < windw && q_idx => kv_idx;
  outputs o;
}
"""
RIGHT = WRONG.replace("dtyp", "dtype").replace("windw", "window").replace("=>", ">=")


class Fix(attnc.Case):
    def test_until_nothing_changes(self):
        """A syntax error hides other mistakes."""
        spec = self.write("wrong.attn", WRONG)
        process = self.attnc("check", "--fix", spec)
        self.assertEqual(spec.read_text(), RIGHT)
        self.assertIn("fixed: ", process.stderr)
        self.assertIn(f"{spec}:5:43: write `>=`", process.stderr)
        self.assertIn("ok: ", process.stdout)
        written = spec.stat().st_mtime_ns
        self.assertEqual(self.attnc("check", "--fix", spec).stderr, "")
        self.assertEqual(spec.stat().st_mtime_ns, written)

    def test_what_is_left_is_reported(self):
        spec = self.write("wrong.attn", WRONG.replace("outputs o", "outputs o, nonsense"))
        process = self.attnc("check", "--fix", spec, code=1)
        self.assertIn("error[E", process.stderr)
        self.assertIn("nonsense", process.stderr)
        self.assertNotIn("windw", process.stderr)
        self.assertEqual(spec.read_text(), RIGHT.replace("outputs o", "outputs o, nonsense"))

    def test_standard_input(self):
        process = self.attnc("check", "--fix", "-", stdin=WRONG)
        self.assertEqual(process.stdout, RIGHT)
        entry, = self.attnc_json("check", "--fix", "-", stdin=WRONG)["specs"]
        self.assertEqual((entry["ok"], entry["text"]), (True, RIGHT))
        self.assertEqual(len(entry["fixed"]), 3)
        self.assertEqual(self.attnc("check", "--fix", "-", stdin=RIGHT).stdout, RIGHT)

    def test_json_and_several_files(self):
        right = self.attnc("convert", "-", stdin=RIGHT).stdout
        head, sep, tail = right.rpartition("window")
        spec, other = self.write("x.attn.json", f"{head}windw{tail}"), self.write("y.attn", WRONG)
        self.attnc("check", "--fix", spec, other)
        self.assertEqual(spec.read_text(), head + sep + tail)
        self.assertEqual(other.read_text(), RIGHT)

    def test_a_standard_spec_stays(self):
        before = (SPECS / "causal.attn").read_bytes()
        process = self.attnc("check", "--fix", "causal", folder=self.folder, code=4)
        self.assertIn("give that, or a copy of it", process.stderr)
        self.assertEqual((SPECS / "causal.attn").read_bytes(), before)

    def test_every_case(self):
        """A diagnostic with just one fix is fixed, and the result is stable."""
        for path in sorted((attnc.SOURCE / "tests" / "golden" / "diagnostics" / "cases").glob("*.attn")):
            text = path.read_bytes()
            spec = self.write(path.name, text)
            with self.subTest(path=path.name):
                first = attnc.run("check", "--fix", spec, "--format", "json")
                self.assertIn(first.returncode, (0, 1), first.stderr)
                fixed = json.loads(first.stdout)["specs"][0].get("fixed", [])
                self.assertEqual(bool(fixed), spec.read_bytes() != text)
                again = attnc.run("check", "--fix", spec, "--format", "json")
                self.assertNotIn("fixed", json.loads(again.stdout)["specs"][0])


if __name__ == "__main__":
    attnc.main()
