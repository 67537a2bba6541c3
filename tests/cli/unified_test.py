"""The strategy `unified` (attention as one node), as far as cuDNN 9.19 supports it."""
import attnc
from attnc import SOURCE, SPECS

SURFACE = SOURCE / "tests" / "gpu" / "surface"


class Unified(attnc.Case):
    def test_what_every_version_takes(self):
        for spec in (SPECS / "noop.attn", SURFACE / "padding.attn", SURFACE / "thd.attn",
                     SURFACE / "paged_pool.attn"):
            with self.subTest(spec.name):
                result = self.attnc_json("compile", spec, "--target", "h200", "--strategy",
                                         "unified", "-o", self.folder / "x.attnplan")
                self.assertEqual((result["strategy"], result["refused"]), ("unified", []))
                steps = result["manifest"]["program"]["steps"]
                graph, = (step["graph"] for step in steps if step["step"] == "cudnn")
                self.assertEqual([node["op"] for node in graph["nodes"]], ["sdpa_forward"])

    def test_explain_has_the_node(self):
        text = self.attnc("explain", SPECS / "noop.attn", "--target", "h200", "--strategy",
                          "unified").stdout
        self.assertIn("= sdpa_forward.f32 ", text)

    def test_an_old_library_says_what_it_lacks(self):
        version = self.attnc_json("version")["cudnn"]["version"]
        if not version.startswith("9.19."):
            self.skipTest(f"cuDNN is {version}, which takes more")
        process = self.attnc("compile", SPECS / "causal.attn", "--target", "h200", "--strategy",
                             "unified", "-o", self.folder / "x.attnplan", code=3)
        self.assertIn(f"needs cuDNN 9.20.0 or newer; this is {version}", process.stderr)

    def test_what_it_has_no_place_for(self):
        process = self.attnc("compile", SPECS / "dropout_mask.attn", "--target", "h200",
                             "--strategy", "unified", "-o", self.folder / "x.attnplan", code=3)
        self.assertIn("the unified node supports random dropout only", process.stderr)

    def test_a_refusal_shows_every_strategy(self):
        target = self.refusing_target()
        command = ["compile", SPECS / "noop.attn", "--target", target, "-o", self.folder / "x.attnplan"]
        process = self.attnc(*command, code=3)
        self.assertIn("strategy `unified`: ", process.stderr)
        self.assertIn("strategy `native`: attnc's own engine is for compute capability 8.0", process.stderr)
        self.assertIn("`--verbose` lists what cuDNN answers for each engine config", process.stderr)
        self.assertNotIn("NOT_SUPPORTED", process.stderr)
        verbose = self.attnc(*command, "--verbose", code=3).stderr
        for name in ("composite", "unified"):
            self.assertIn(f"engine configs tried (strategy {name}):", verbose)
        error = self.attnc_json("explain", SPECS / "noop.attn", "--target", target, "--why-not",
                                code=3)["engine"]["error"]
        tried = error["detail"]["strategies"]
        self.assertEqual([one["strategy"] for one in tried], ["composite", "unified"])
        for one in tried:
            self.assertGreater(len(one["detail"]["configs"]), 0, one["strategy"])
        only = self.attnc_json("compile", SPECS / "noop.attn", "--target", target, "--strategy",
                               "composite", "-o", self.folder / "x.attnplan", code=3)["error"]
        self.assertNotIn("strategies", only["detail"])

    def test_no_such_strategy(self):
        command = ["compile", SPECS / "noop.attn", "--target", "h200", "-o", self.folder / "x.attnplan"]
        process = self.attnc(*command, "--strategy", "compound", code=2)
        self.assertIn("--strategy: 'compound' is not ", process.stderr)
        self.attnc(*command, "--lowering", "composite", code=2)

    def test_a_single_row_on_blackwell(self):
        process = self.attnc("compile", SPECS / "decode_gqa.attn", "--target", "b200", "--engine",
                             "cudnn", "-o", self.folder / "x.attnplan", code=3)
        self.assertIn("computes wrong results for a single query row on this GPU", process.stderr)
        self.assertIn("use cuDNN 9.24.1, or 9.25.1 or newer", process.stderr)
        self.assertIn("decode_gqa.attn:", process.stderr)


if __name__ == "__main__":
    attnc.main()
