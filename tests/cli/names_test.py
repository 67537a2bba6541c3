"""Specs by name: those that are shipped with attnc."""
import attnc
from attnc import NOOP, SPECS


class Names(attnc.Case):
    def test_a_standard_spec(self):
        for name in ("causal", "causal.attn"):
            process = self.attnc("check", name, folder=self.folder)
            self.assertIn(f"{SPECS / 'causal.attn'}: causal ", process.stdout)
        result = self.attnc_json("run", "noop", "--bind", "Sq=16", "--bind", "B=1", "--backend", "reference",
                                 folder=self.folder)
        self.assertEqual(result["name"], "noop")
        plan = self.folder / "x.attnplan"
        self.attnc("compile", "causal", "--target", "h200", "--bind", "Sq=128", "-o", plan, folder=self.folder)
        self.assertTrue(plan.exists())
        self.attnc("draw", "document", folder=self.folder)
        self.attnc("explain", "causal", "--target", "h200", "--engine", "native", folder=self.folder)
        self.assertEqual(len(self.attnc_json("check", "causal", "gpt_oss", folder=self.folder)["specs"]), 2)

    def test_a_file_wins(self):
        self.write("causal.attn", NOOP)
        self.assertIn("causal.attn: noop ", self.attnc("check", "causal", folder=self.folder).stdout)
        self.write("causal", NOOP.replace("noop", "other"))
        self.assertIn("causal: other ", self.attnc("check", "causal", folder=self.folder).stdout)

    def test_no_such_name(self):
        process = self.attnc("check", "gemma2_locl", folder=self.folder, code=4)
        self.assertIn("did you mean `gemma2_local`?", process.stderr)
        for name in ("./causal", "folder/causal", "../causal", "lib/masks", "causal.json", ""):
            self.attnc("check", name, folder=self.folder, code=4)

    def test_what_is_written_to_is_a_file(self):
        before = (SPECS / "causal.attn").read_bytes()
        process = self.attnc("fmt", "causal", folder=self.folder, code=4)
        self.assertIn(f"the name means {SPECS / 'causal.attn'}: give that, or a copy of it", process.stderr)
        self.assertEqual((SPECS / "causal.attn").read_bytes(), before)

    def test_completion(self):
        words = [line.split("\t")[0] for line in self.attnc("complete", "check", "gemma").stdout.splitlines()]
        self.assertIn("gemma2_local", words)


if __name__ == "__main__":
    attnc.main()
