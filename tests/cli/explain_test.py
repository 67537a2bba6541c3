"""explain: graph nodes of each clause, mask, work, engine."""
import re

import attnc
from attnc import NOOP, SPECS

# What cuDNN's graphs look like.
H200 = ("--target", "h200", "--engine", "cudnn")
SMALL = ["--bind", "B=1", "--bind", "Hq=2", "--bind", "Hkv=1", "--bind", "D=64"]


class Explain(attnc.Case):
    def explain(self, name, *arguments):
        return self.attnc_json("explain", SPECS / f"{name}.attn", *H200, *SMALL,
                               *arguments)

    def unbuilt(self):
        """Options for tests of what does not depend on cuDNN, which takes a second to build a plan."""
        folder = self.folder / "unbuilt"
        folder.mkdir(exist_ok=True)
        return "--cudnn", folder

    def test_text(self):
        text = self.attnc("explain", SPECS / "gemma2_local.attn", *H200, *SMALL,
                          "--bind", "Sq=512", "--bind", "window=100").stdout
        # Engine and workspace depend on the version of cuDNN.
        text = re.sub(r"\nengine\n.*", "\n", text.replace(str(SPECS), "specs"), flags=re.DOTALL)
        self.expect_golden("explain-gemma2_local.txt", text)

    def test_native_text(self):
        text = self.attnc("explain", SPECS / "gemma2_local.attn", "--target", "h200", "--engine", "native",
                          "--grad", *SMALL, "--bind", "Sq=512", "--bind", "window=300").stdout
        # Times follow the calibration, registers the version of NVRTC.
        text = re.sub(r"\d\.\d{3} ms|predicted \d+ TFLOP/s: [\d.]+ %",
                      lambda match: re.sub(r"\d", "0", match[0]), text)
        text = re.sub(r"( (?:attn_\w+) .* )(\d+)(?=  )", lambda match: match[1] + "R" * len(match[2]), text)
        text = re.sub(r"(?s).*?(\nstrategies\n.*?\n)\nbackward: tensors\n.*?(\nbackward: strategies\n)",
                      r"\1\2", text)
        self.expect_golden("explain-native.txt", text)

    def test_every_node_is_in_exactly_one_clause(self):
        for name in ("gemma2_local", "causal", "alibi_slopes", "noop", "bias_full"):
            result = self.explain(name, "--bind", "Sq=256", *self.unbuilt())
            nodes = [node for clause in result["clauses"] for node in clause["nodes"]]
            graph, = result["program"]["steps"]
            count = len(graph["graph"]["nodes"])
            self.assertEqual((len(nodes), len(set(nodes))), (count, count), name)

    def test_why_not_of_what_no_strategy_takes(self):
        spec = attnc.SOURCE / "tests/gpu/surface/sink_all_outputs.attn"
        refused = self.attnc("explain", spec, *H200, code=3)
        self.assertEqual(refused.stdout, "")
        process = self.attnc("explain", spec, *H200, "--why-not", code=3)
        for heading in ("\nclauses\n", "\nmask\n", "\nwork\n", "\nengine\n  none\n"):
            self.assertIn(heading, process.stdout)
        self.assertIn("band      kv_idx - q_idx <= 0", process.stdout)
        self.assertIn(":9:19\n", process.stdout)  # `max` among the outputs
        self.assertIn("no statistic but lse", process.stdout)

    def test_rates_beside_the_peak_of_the_type(self):
        for spec, engine, bits, peak in (("causal", "cudnn", 16, 989.4), ("fp8_causal", "cudnn", 8, 1978.9),
                                         ("fp8_causal", "native", 8, 1978.9)):
            explain = ("explain", SPECS / f"{spec}.attn", "--target", "h200", "--engine", engine)
            engine = self.attnc_json(*explain)["engine"]
            self.assertEqual(engine["peak_tflops"], peak)
            self.assertTrue(peak / 4 < engine["predicted_tflops"] < peak, engine)
            self.assertRegex(self.attnc(*explain).stdout,
                             rf"predicted \d+ TFLOP/s: [\d.]+ % of the {peak:.0f} of dense {bits}-bit products")
        # attnc's own backward of 8 bits has products of bf16.
        explain = ("explain", SPECS / "fp8_training.attn", "--target", "h200", "--engine", "native", "--grad")
        self.assertEqual(self.attnc_json(*explain)["backward"]["engine"]["peak_tflops"], 989.4)
        self.assertIn("% of the 989 of dense 16-bit products", self.attnc(*explain).stdout)
        # So have kernels of warps in both directions.
        explain = ("explain", SPECS / "fp8_causal.attn", "--target", "a100", "--engine", "native")
        self.assertIn("% of the 312 of dense 16-bit products", self.attnc(*explain).stdout)
        # Which scores are computed depends on lengths.
        explained = self.attnc_json("explain", SPECS / "padding.attn", "--target", "h200", "--engine", "cudnn")
        self.assertNotIn("predicted_tflops", explained["engine"])

    def test_workspace_and_what_is_much_of_it(self):
        spec = self.write("learned.attn", """attention learned {
  dims B = 32, Hq = 16, Sq = 2048, Skv = Sq, D = 128;
  learn slope: f32[Hq];
  score score + slope[h] * (kv_idx - q_idx);
  grad q, k, v, slope;
}
""")
        process = self.attnc("explain", spec, *H200)
        self.assertIn("warning[W0480]: the backward needs ", process.stderr)
        self.assertIn("learned.attn:3:9", process.stderr)
        self.assertRegex(process.stdout, r"workspace in all 2\.[0-9] GB \(cuDNN .*intermediates")
        self.assertRegex(process.stdout, r"an attnc kernel derives scores.modified, 64 times")
        plan = self.folder / "much.attnplan"
        for command in (["explain", spec, *self.unbuilt()], ["compile", spec, "-o", plan]):
            denied = self.attnc(*command, *H200, "--deny", "warnings", code=1)
            self.assertIn("W0480", denied.stderr)
            self.assertIn("warnings are treated as errors", denied.stderr)
            self.assertEqual(denied.stdout, "")
        self.assertFalse(plan.exists())
        result = self.attnc_json("explain", spec, *H200, "--bind", "Sq=256", "--deny", "warnings")
        engine = result["backward"]["engine"]
        self.assertGreater(engine["workspace_bytes"], 16 * 32 * 16 * 256 * 256)
        plan = self.folder / "x.attnplan"
        self.attnc("compile", spec, *H200, "--bind", "Sq=256", "-o", plan)
        backward = self.attnc_json("inspect", plan)["plans"][1]["manifest"]
        self.assertEqual(backward["workspace_bytes"], engine["workspace_bytes"])

    def test_clauses(self):
        result = self.explain("softcap", *self.unbuilt())
        clauses = {clause["keyword"]: clause for clause in result["clauses"]}
        self.assertIn("tanh", clauses["score"]["text"])
        self.assertTrue(any("tanh" in node for node in clauses["score"]["nodes"]))
        self.assertTrue(any("matmul" in node for node in clauses["attention"]["nodes"]))
        self.assertEqual(clauses["dims"]["nodes"], [])

    def test_mask_and_work(self):
        unbuilt = self.unbuilt()
        result = self.explain("sliding_window", "--bind", "Sq=512", "--bind", "window=64", *unbuilt)
        self.assertEqual((result["mask"]["left"], result["mask"]["right"]), (63, 0))
        self.assertEqual(result["mask"]["residual"], [])
        visible = sum(min(row + 1, 64) for row in range(512))
        self.assertAlmostEqual(result["share_in_band"], visible / 512**2)
        self.assertEqual(result["flop"], 2 * 2 * 512 * 512 * 128)
        result = self.explain("document", "--bind", "Sq=256", *unbuilt)
        condition, = result["mask"]["conditions"]
        self.assertEqual([condition["text"]], result["mask"]["residual"])
        self.assertIn(condition["written"], (SPECS / "document.attn").read_text().splitlines()
                      [condition["line"] - 1])
        self.assertIsNone(result["mask"]["left"])
        self.assertEqual(result["mask"]["keys"], {"fewest": 0, "most": 256, "exact": False})
        result = self.explain("prefix_lm", "--bind", "Sq=256", "--bind", "prefix=64", *unbuilt)
        self.assertEqual(result["mask"]["keys"], {"fewest": 64, "most": 256, "exact": True})
        self.assertNotIn("keys", self.explain("noop", "--bind", "Sq=256", *unbuilt)["mask"])

    def test_keys_of_a_row(self):
        def keys(mask):
            path = self.write("keys.attn", NOOP.replace("outputs", f"{mask} outputs"))
            text = self.attnc("explain", path, *H200, *self.unbuilt(), "--bind", "Sq=16").stdout
            return [line.strip() for line in text.splitlines() if line.startswith("  keys ")]

        several = " || ".join(f"kv_idx == {2 * i}" for i in range(6))
        self.assertEqual(keys(f"mask {several};"), ["keys      each row sees 6 of 24"])
        self.assertEqual(keys("mask kv_idx <= q_idx;"), ["keys      a row sees 1 to 16 of 24"])
        self.assertEqual(keys("lengths kv; mask kv_idx <= q_idx;"), ["keys      a row sees at most 16 of 24"])
        flags = "tensor t: bool[Skv]; mask "
        self.assertEqual(keys(f"{flags} t[kv_idx];"), [])
        self.assertEqual(keys(f"{flags} t[kv_idx] && kv_idx < 8;"),
                         ["keys      a row sees at most 8 of 24"])
        self.assertEqual(keys(f"{flags} t[kv_idx] && kv_idx < 8 || kv_idx < 3;"),
                         ["keys      a row sees at least 3 and at most 8 of 24"])

    def test_a_block_map_that_is_cut_short(self):
        # A sum of two squares never leaves 3 of 4, which is found score by score.
        mask = "mask kv_idx < 4096 && (q_idx * q_idx + kv_idx * kv_idx) % 4 != 3;"
        path = self.write("costly.attn", NOOP.replace("Sq = 16, Skv = 24", "Sq = Skv, Skv")
                          .replace("outputs", f"{mask} outputs"))
        explain = ("explain", path, *H200, *self.unbuilt(), "--bind")
        for keys, stopped in (8192, True), (256, False):
            result = self.attnc_json(*explain, f"Skv={keys}")["mask"]
            self.assertEqual((result["stopped"], result["blocks"]["exact"]), (stopped, not stopped))
        text = self.attnc(*explain, "Skv=8192").stdout
        self.assertIn(" partial or unknown, 2048 empty\n  stopped   ", text)

    def test_derivatives(self):
        result = self.explain("softcap", "--bind", "Sq=64", "--grad", *self.unbuilt())["gradients"]
        self.assertEqual(result["wanted"], ["q", "k", "v"])
        self.assertEqual(result["derivatives"], [{"of": "score", "by": "score", "value":
                         "1.0 - tanh(score / 30.0) * tanh(score / 30.0)"}])
        self.assertNotIn("gradients", self.explain("softcap", "--bind", "Sq=64", *self.unbuilt()))
        result = self.explain("sink_global", "--bind", "Sq=64", "--grad", *self.unbuilt())["gradients"]
        self.assertEqual(result["derivatives"][1], {"of": "sink", "by": "sinks[h]", "value": "1.0"})
        through = self.attnc("explain", SPECS / "merge_by_lse.attn", *H200, code=3).stdout
        self.assertIn("wanted    q, k, v, through o and lse\n", through)
        text = self.attnc("explain", SPECS / "learned_bias_qk.attn", *H200, *SMALL,
                          "--bind", "Sq=64", *self.unbuilt()).stdout
        self.assertIn("\ngradients\n  wanted    q, k, v, bias\n  score     by score: 1.0\n"
                      "  score     by bias[q_idx, kv_idx]: 1.0\n", text)

    def test_backward(self):
        result = self.explain("softcap", "--bind", "Sq=128", "--grad")
        self.assertIn("lse", [tensor["name"] for tensor in result["program"]["tensors"]])
        backward = result["backward"]
        self.assertTrue(backward["engine"]["known"])
        self.assertEqual(backward["engine"]["target"], "h200")
        self.assertEqual(backward["flop"], result["flop"] * 5 / 2)
        nodes = [node for clause in backward["clauses"] for node in clause["nodes"]]
        self.assertEqual(sum("matmul" in node for node in nodes), 5)
        text = self.attnc("explain", SPECS / "softcap.attn", *H200, *SMALL, "--bind",
                          "Sq=128", "--grad").stdout
        headings = ("\ngradients\n", "\nwork\n", "\nengine\n", "\nbackward: tensors\n",
                    "\nbackward: clauses and the graph nodes they became\n", "\nbackward: work\n",
                    "\nbackward: engine\n")
        places = [text.index(heading) for heading in headings]
        self.assertEqual(places, sorted(places))
        self.assertNotIn("backward", self.explain("softcap", "--bind", "Sq=128"))

    def test_why_there_is_no_backward(self):
        text = NOOP.replace("bshd", "paged(page = 16)").replace("Skv = 24", "Skv = 128")
        path = self.write("paged.attn", text)
        backward = self.attnc_json("explain", path, *H200, "--grad", code=3)["backward"]
        self.assertEqual(list(backward), ["error"])
        self.assertEqual(backward["error"]["code"], "unsupported")
        out = self.attnc("explain", path, *H200, "--grad", code=3).stdout
        self.assertIn("\nbackward\n  none\nerror[unsupported]: ", out)

    def test_a_pair(self):
        plan = self.compile(SPECS / "softcap.attn", *SMALL, "--bind", "Sq=128", "--direction",
                            "both")
        explained = self.attnc_json("explain", plan)
        forward, backward = self.attnc_json("inspect", plan)["plans"]
        self.assertEqual(explained["program"], forward["manifest"]["program"])
        self.assertEqual(explained["backward"]["program"], backward["manifest"]["program"])
        self.assertEqual(explained["backward"]["engine"]["steps"][0]["engine"],
                         backward["manifest"]["compiled"][0]["engine"])
        self.assertIn("gradients", explained)

    def test_what_cudnn_skips(self):
        words = ": cuDNN skips the blocks outside"
        for masks, rows, skips in (
                ("mask q_idx >= kv_idx; outputs", 16, True), ("mask q_idx >= kv_idx; outputs", 1, False),
                ("mask q_idx >= kv_idx && q_idx - kv_idx < 4; outputs", 16, True),
                ("mask kv_idx - q_idx < 4 && q_idx - kv_idx < 4; outputs", 16, True),
                ("mask q_idx - kv_idx < 4; outputs", 16, True),
                ("mask q_idx + 2 >= kv_idx; outputs", 16, True)):
            path = self.write("band.attn", NOOP.replace("outputs", masks))
            with self.subTest(masks, rows=rows):
                arguments = ["explain", path, *H200, *self.unbuilt(), "--bind", f"Sq={rows}"]
                text = self.attnc(*arguments).stdout
                self.assertIn("  band      ", text)
                self.assertEqual(words in text, skips)
                self.assertEqual(self.attnc_json(*arguments)["mask"]["skips_blocks"], skips)

    def test_pages(self):
        arguments = ["explain", SPECS / "sliding_tile_2d.attn", *H200]
        line = "tiles of 64 rows see up to 9 of 64 pages of 64 columns, 14 % of all"
        self.assertIn(f"\nparts\n  {line}\n", self.attnc(*arguments).stdout)
        self.assertEqual(self.attnc_json(*arguments)["engine"]["parts"], [line])
        lists = self.attnc_json("explain", SPECS / "bigbird.attn", *H200)
        self.assertIn("(assumed)", lists["engine"]["parts"][0])

    def test_the_target_that_nobody_named(self):
        path = self.write("noop.attn", NOOP)
        process = self.attnc("explain", path)
        self.assertEqual("target: h200, because " in process.stderr, not attnc.has_gpu())
        self.assertEqual(self.attnc("explain", path, *H200).stderr, "")

    def test_engine(self):
        engine = self.explain("causal", "--bind", "Sq=256")["engine"]
        self.assertTrue(engine["known"])
        self.assertEqual(engine["target"], "h200")
        self.assertGreaterEqual(engine["steps"][0]["engine"], 0)

    def test_a_plan(self):
        plan = self.compile(NOOP)
        explained = self.attnc_json("explain", plan)
        manifest = self.attnc_json("inspect", plan)
        self.assertEqual(explained["engine"]["steps"][0]["engine"], manifest["compiled"][0]["engine"])
        self.assertEqual(explained["program"], manifest["program"])
        self.attnc("explain", plan, "--target", "h200", code=2)

    def test_plans_of_unusual_options(self):
        """Explain prints what the plan has, not what it would decide again."""
        cases = {
            "prefix_lm": ["--without", "bounding_band,redundant,reals"],
            "longformer": ["--strategy", "composite"],
            "gemma2_local": ["--without", "reals"],
            "natten_2d": ["--strategy", "block_sparse"],
            "dilated_window": ["--strategy", "parts"],
            "document": ["--strategy", "unfused", "--bind", "Sq=256"],
        }
        for name, options in cases.items():
            with self.subTest(name):
                plan = self.compile(SPECS / f"{name}.attn", "--direction", "fwd", *options)
                manifest = self.attnc_json("inspect", plan)
                explained = self.attnc_json("explain", plan)
                engine = explained["engine"]
                self.assertEqual(explained["program"], manifest["program"])
                self.assertEqual(engine["strategy"], manifest["strategy"])
                if "--strategy" in options:
                    self.assertEqual(manifest["strategy"], options[options.index("--strategy") + 1])
                self.assertEqual(engine.get("parts", []), manifest.get("parts", []))
                self.assertEqual(engine.get("choice"), manifest.get("choice"))
                for key in ("strategy", "predicted_ms", "workspace_bytes", "steps"):
                    self.assertEqual(explained[key], manifest[key])
                self.assertGreater(explained["predicted_ms"], 0)
                self.assertEqual(len(explained["steps"]), len(manifest["program"]["steps"]))
                self.assertEqual([step["engine"] for step in explained["steps"]].count("cudnn"),
                                 len(manifest["compiled"]))
                self.assertEqual([step["engine"] for step in engine["steps"] if "engine" in step],
                                 [step["engine"] for step in manifest["compiled"]])
                without = options[options.index("--without") + 1] if "--without" in options else ""
                self.assertEqual(",".join(manifest.get("without", [])), without)
                if "bounding_band" in without:
                    self.assertIsNone(explained["mask"]["right"])

    def test_plans_of_kernels_alone(self):
        plan = self.compile(SPECS / "causal.attn", "--engine", "native", "--direction", "fwd")
        manifest = self.attnc_json("inspect", plan)
        explained = self.attnc_json("explain", plan)
        for json in (manifest, explained):
            self.assertEqual(json["strategy"], "native")
            self.assertEqual(json["steps"], [{"engine": "native"}])
            self.assertGreater(json["predicted_ms"], 0)
            self.assertEqual(json["workspace_bytes"], 256)  # a counter
        self.assertEqual(manifest["cudnn_version"], 0)
        self.assertIn("cuDNN       none", self.attnc("inspect", plan).stdout)
        kernels, = explained["engine"]["kernels"]
        launch, = kernels["launches"]
        self.assertTrue(32 < launch["registers"] <= 255, launch)
        self.assertEqual(launch["stack_bytes"], 0)
        facts = kernels["attention"]
        self.assertEqual(launch["block"][0], 128 * (facts["warp_groups"] + 1))
        blocks = facts["blocks"]
        shown = 100 * blocks["full"] / (blocks["full"] + blocks["partial"] + blocks["skipped"])
        text = self.attnc("explain", plan).stdout
        self.assertIn(f"blocks  of each head: {blocks['full']} ({shown:.1f} %) full, ", text)
        self.assertIn("  native  native ", text)

    def test_blocks_of_a_band_are_computed(self):
        """One kernel, and one that makes a schedule; no memory that grows with the keys."""
        for spec in ("paged_decode", "chunked_prefill"):
            workspaces = set()
            for keys in (8192, 32768):
                explain = ("explain", SPECS / f"{spec}.attn", "--target", "h200", "--engine", "native",
                           "--bind", "B=64", "--bind", f"Skv={keys}")
                engine = self.attnc_json(*explain)["engine"]
                kernels, = engine["kernels"]
                self.assertEqual([launch["kernel"] for launch in kernels["launches"]],
                                 ["attn_schedule", "attn_forward"])
                self.assertTrue(kernels["attention"]["schedule"])
                workspaces.add(engine["workspace_bytes"])
                text = self.attnc(*explain).stdout
                self.assertIn("blocks  first and last of each tile computed", text)
                self.assertIn("divided among 132 blocks of threads by their lengths", text)
            self.assertEqual(len(workspaces), 1)

    def test_without_cudnn_the_engine_is_not_known(self):
        empty = self.folder / "empty"
        empty.mkdir()
        path = self.write("noop.attn", NOOP)
        text = self.attnc("explain", path, *H200, "--cudnn", empty).stdout
        self.assertIn("not known: cuDNN could not be loaded", text)
        self.assertIn("matmul", text)
        engine = self.attnc_json("explain", path, "--engine", "cudnn", "--cudnn", empty)["engine"]
        self.assertFalse(engine["known"])

    def test_both_engines(self):
        path = SPECS / "causal.attn"
        empty = self.folder / "empty"  # attnc's own kernels need no cuDNN
        empty.mkdir()
        explain = ("explain", path, "--bind", "Sq=4096", "--cudnn", empty, "--target", "h200")
        process = self.attnc(*explain)
        self.assertRegex(process.stdout, r"\n  native  native +\d\.\d+ ms +256 B  chosen\n"
                         r"  cudnn   composite +\d\.\d+ ms +-  slower\n")
        self.assertIn("blocks outside are skipped", process.stdout)
        result = self.attnc_json(*explain)
        self.assertEqual(result["steps"], [{"engine": "native"}])
        choice = result["engine"]["choice"]
        self.assertEqual([way["strategy"] for way in choice][:2], ["native", "composite"])
        self.assertEqual([way["engine"] for way in choice][:2], ["native", "cudnn"])
        self.assertLess(choice[0]["predicted_ms"], choice[1]["predicted_ms"])
        considered = {way["strategy"]: way for way in result["engine"]["considered"]}
        self.assertEqual(considered["native"]["workspace_bytes"], 256)
        self.assertEqual(considered["composite"]["predicted_ms"], choice[1]["predicted_ms"])
        self.assertEqual(considered["parts"],
                         {"strategy": "parts", "engine": "cudnn", "verdict": "refused",
                          "reason": "the mask has no parts"})

    def test_why_an_engine_was_not_taken(self):
        explain = ("explain", SPECS / "causal.attn", "--target", "a100", "--bind", "Sq=64", "--bind", "D=512")
        last = self.attnc_json(*explain)["engine"]["choice"][-1]
        self.assertEqual((last["strategy"], last["engine"], last["predicted_ms"]),
                         ("native", "native", None))
        self.assertIn("no forward above D 256", last["refused"])
        self.assertRegex(self.attnc(*explain).stdout,
                         r"  native  native +- +-  refused \(1\)\n(.|\n)*\n  \(1\) attnc's own engine has no forward ")

    def test_a_padded_head_dimension(self):
        path = self.write("d100.attn", NOOP.replace("D = 64", "D = 100"))
        self.assertIn("q.padded", self.attnc("explain", path, *H200, *self.unbuilt()).stdout)

    def test_why_not(self):
        path, target = self.write("noop.attn", NOOP), self.refusing_target()
        refused = self.attnc("explain", path, "--target", target, code=3)
        self.assertEqual(refused.stdout, "")
        text = self.attnc("explain", path, "--target", target, "--why-not", code=3).stdout
        self.assertIn("matmul", text)
        self.assertIn("none for old", text)
        self.assertIn("NOT_SUPPORTED", text)


if __name__ == "__main__":
    attnc.main()
