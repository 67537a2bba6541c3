"""support: a matrix of specs and targets, with reasons."""
import attnc
from attnc import NOOP, SOURCE, SPECS


class Support(attnc.Case):
    def test_rules_alone_need_no_cudnn(self):
        text = self.attnc("support", SPECS / "causal.attn", "--tier", "rules", "--cudnn",
                          self.folder).stdout
        self.assertIn("rtx5090", text)
        self.assertIn("maybe", text)

    def test_columns_are_aligned(self):
        names = [SPECS / f"{name}.attn" for name in ("noop", "mxfp8", "t5_bias")]
        for specs in (names, names[:1]):
            text = self.attnc("support", *specs, "--target", "h200,a100,l40s", "--tier", "rules", code=3 if len(specs) > 1 else 0).stdout
            *rows, totals = text.split("\n\n")[0].splitlines()
            self.assertTrue(totals.startswith("3 specs " if specs is names else "1 spec "), totals)
            titles = rows[0]
            for title in ("a100", "l40s"):
                column = titles.index(title)
                for row in (*rows, totals):
                    self.assertEqual((row[column - 2:column], row[column] == " "), ("  ", False), text)

    def test_tiers_agree(self):
        paths = [SPECS / "gemma2_local.attn", SPECS / "document.attn"]
        targets = f"h200,l40s,{self.refusing_target()}"
        for tier in ("heuristics", "build"):
            result = self.attnc_json("support", *paths, "--target", targets, "--tier", tier, code=3)
            for spec in result["specs"]:
                self.assertEqual([cell["outcome"] for cell in spec["targets"]],
                                 ["served", "served", "refused"], tier)
                self.assertEqual({cell["tier"] for cell in spec["targets"]}, {tier})
        refused = result["specs"][0]["targets"][2]
        self.assertNotEqual(refused["reason"], "")
        self.assertGreater(len(refused["error"]["detail"]["configs"]), 0)

    def test_a_folder_is_every_spec_in_it(self):
        for arguments in (("specs",), ("--all", "specs")):
            text = self.attnc("support", *arguments, "--target", "a100", "--tier", "rules", code=3,
                              folder=SOURCE).stdout
            self.assertIn(f"{len(list(SPECS.glob('*.attn')))} specs", text)

    def test_errors_are_data(self):
        bad = self.write("bad.attn", NOOP.replace("bf16", "bf17"))
        for path, code, key in ((bad, 1, "diagnostics"), (self.folder / "none.attn", 4, "error")):
            for form in ("json", "jsonl"):
                process = self.attnc("support", SPECS / "causal.attn", path, "--tier", "rules", "--format", form,
                                     code=code)
                self.assertIn(key, attnc.json.loads(process.stdout))
                self.assertEqual(process.stdout.count("\n") == 1, form == "jsonl")
                self.assertEqual(process.stderr.count("error["), 1)

    def test_markdown(self):
        text = self.attnc("support", SPECS / "noop.attn", "--target", "h200", "--tier",
                          "heuristics", "--format", "markdown", "--engine", "cudnn").stdout
        self.assertEqual(text, "| spec | h200 |\n|---|---|\n| noop | engine 2 |\n")

    def test_both_engines(self):
        support = ("support", SPECS / "noop.attn", "--target", "h200,a100", "--tier")
        spec, = self.attnc_json(*support, "heuristics")["specs"]
        ours, other = spec["targets"]
        self.assertEqual((ours["strategy"], ours["other_engines"]), ("native", ["cudnn"]))
        self.assertEqual((other["strategy"], other["other_engines"]), ("composite", ["native"]))
        self.assertIn(" native, or cudnn ", self.attnc(*support, "heuristics").stdout)
        self.assertIn(" maybe, or cudnn ", self.attnc(*support, "rules").stdout)

    def test_gradients_need_both_directions(self):
        scored = self.write("sum.attn", NOOP)
        old = self.refusing_target()
        for tier in ("heuristics", "build"):
            spec, = self.attnc_json("support", scored, "--grad", "--target", old, "--tier", tier,
                                    code=3)["specs"]
            cell, = spec["targets"]
            self.assertEqual(cell["direction"], "forward")
            self.assertTrue(cell["reason"].startswith("forward: "), cell)
        # The strategy `unified` has no backward on any GPU.
        spec, = self.attnc_json("support", scored, "--grad", "--target", "h200", "--tier", "rules",
                                "--strategy", "unified", code=3)["specs"]
        cell, = spec["targets"]
        self.assertEqual((cell["direction"], cell["outcome"]), ("backward", "refused"))
        self.assertTrue(cell["reason"].startswith("backward: "), cell)
        text = self.attnc("support", scored, "--grad", "--target", "h200", "--tier", "rules",
                          "--strategy", "unified", code=3).stdout
        self.assertIn("(h200): backward: ", text)

    def test_engines(self):
        """Both directions; targets that agree share a column."""
        names = [SPECS / f"{name}.attn" for name in ("sigmoid", "head_dim_100", "mla_latent")]
        support = ("support", *names, "--engines", "--tier", "rules", "--target", "a100,l40s,h200")
        text = self.attnc(*support, "--format", "markdown", code=3).stdout
        table, reasons = text.split("\n\n")
        self.assertEqual(table, "| spec | a100, l40s | h200 |\n|---|---|---|\n| sigmoid | native | native |\n"
                         "| head_dim_100 | cudnn | cudnn |\n| mla_latent | r1 | native / r2 |\n"
                         "| 3 specs | 2 / 2 | 3 / 2 |")
        first, second = reasons.splitlines()
        self.assertTrue(first.startswith("- **r1** (mla_latent): attnc's own engine has no forward above Dqk 256"), first)
        self.assertTrue(second.startswith("- **r2** (mla_latent): "), second)
        text = self.attnc(*support, code=3).stdout
        self.assertEqual(text.splitlines()[0].split("  ")[-1], "h200")
        self.assertIn("\nr2 (mla_latent): ", text)
        specs = self.attnc_json(*support, code=3)["specs"]
        lines = self.attnc(*support, "--format", "jsonl", code=3).stdout.splitlines()
        self.assertEqual([attnc.json.loads(line) for line in lines], specs)
        cell = specs[2]["targets"][1]
        self.assertEqual((cell["target"], cell["forward"]["outcome"]), ("l40s", "refused"))
        self.assertIn("(this is 576)", cell["forward"]["reason"])
        self.assertEqual(specs[0]["targets"][0]["backward"],
                         {"outcome": "served", "engine": "native", "strategy": "native"})
        self.attnc(*support, "--grad", code=2)

    def test_errors(self):
        self.attnc("support", "--all", SPECS, "--target", "h300", code=2)
        self.attnc("support", code=2)
        self.attnc("support", self.write("bad.attn", "attention {"), code=1)
        self.attnc("support", SPECS / "noop.attn", "--cudnn", self.folder, "--engine", "cudnn", code=4)


if __name__ == "__main__":
    attnc.main()
