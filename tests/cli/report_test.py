"""report: what is on the page, escaping, sizes, what is refused."""
import os
import re

import attnc
import screenshot
from attnc import NOOP, SOURCE, SPECS
from page import Page

LARGEST = 2_000_000  # bytes of a page
EVIL = "</script><script>alert(1)</script><!-- <b>&amp;\"'"


class Report(attnc.Case):
    def report(self, spec, *arguments, name="report.html", compiled=False, **expected):
        """The page. Unless `compiled`, cuDNN is not looked for, which saves time."""
        path = self.folder / name
        if not compiled:
            arguments += ("--engine", "cudnn", "--cudnn", self.folder)
        self.process = self.attnc("report", spec, "-o", path, "--target", "h200", *arguments, **expected)
        self.assertEqual(self.process.stdout, "")
        page = Page(path)
        self.assertEqual(page.problems(), [])
        return page

    def explained(self, spec, *arguments):
        return self.attnc_json("explain", spec, "--target", "h200", *arguments)

    def test_cudnn(self):
        spec = SPECS / "gemma2_local.attn"
        page = self.report(spec, "--engine", "cudnn", compiled=True)
        explained = self.explained(spec, "--engine", "cudnn")
        for line in spec.read_text().splitlines():
            self.assertIn(line, page.text)
        for way in explained["engine"]["choice"]:
            self.assertRegex(page.text, rf"{way['strategy']}(.|\n)*{way['predicted_ms']:.3f} ms")
        nodes = [node for clause in explained["clauses"] for node in clause["nodes"]]
        self.assertEqual(len(page.all("g", "node")), len(nodes) + 3)  # and q, k, v
        for node in nodes:
            self.assertIn(node, page.text)
        # A node is linked to its clause as the text of the spec is.
        clauses = {attributes.get("data-clauses") for attributes in page.all("div", "line")}
        for node in page.all("g", "node"):
            self.assertIn(node.get("data-clauses"), clauses | {None})
        for text in ("[16777216,256,2048,1]", "67.1 MB", "201.9 MB", "256 B", "412.35 GFLOP",
                     "989.4 TFLOP/s", "4800 GB/s", "q_idx - kv_idx < 4096",
                     "a row sees 1 to 4096 of 8192"):
            self.assertIn(text, page.text)
        milliseconds = explained["predicted_ms"]
        share = 412.35e9 / (milliseconds * 1e-3) / 989.4e12
        self.assertIn(f"{100 * share:.1f} %", page.text)
        panel, = page.data["panels"]
        self.assertEqual(panel["cells"], [64, 64])
        counts = {kind: sum(int(n) for n in re.findall(rf"(\d+){kind}", panel["map"])) for kind in "fpe"}
        self.assertEqual(counts, {"f": 1488, "p": 96, "e": 2512})

    def test_native_plan_with_gradients(self):
        plan = self.compile(SPECS / "t5_bias.attn", "--engine", "native", "--direction", "both")
        both = self.folder / "both.html"
        self.attnc("report", plan, "-o", both)
        page = Page(both)
        self.assertEqual(page.problems(), [])
        for text in ("attn_backward", "__global__", "backward, predicted", "gradient", "d_table",
                     "Gradients of q, k, v, table"):
            self.assertIn(text, page.text)
        forward = self.folder / "forward.html"
        self.attnc("report", plan, "-o", forward, "--direction", "fwd")
        self.assertNotIn("attn_backward", Page(forward).text)
        self.assertIn("--target has no meaning",
                      self.attnc("report", plan, "-o", forward, "--target", "h200", code=2).stderr)
        alone = self.compile(NOOP)
        self.assertIn("the plan file does not have it",
                      self.attnc("report", alone, "-o", forward, "--direction", "both", code=2).stderr)

    def test_every_spec(self):
        for path in sorted(SPECS.glob("*.attn")):
            with self.subTest(path.name):
                code = 3 if path.stem in attnc.not_lowered("h200") else 0
                # cuDNN computes no gradients through lse.
                only = ["--direction", "fwd"] if path.stem == "merge_by_lse" else []
                page = self.report(path, *only, code=code)
                self.assertLess(len(page.source), LARGEST)
                self.assertIn(f"attention {path.stem}", page.text)
                self.assertEqual(len(page.all("svg", "graph")) == 0, code == 3)
                self.assertTrue(page.data["panels"])
                self.assertNotRegex(page.text, r"\bnan\b")

    def test_no_keys(self):
        page = self.report(SPECS / "noop.attn", "--bind", "Sq=8", "--bind", "Skv=0")
        self.assertIn("There is no picture: 8 rows and 0 columns", page.text)
        self.assertNotRegex(page.text, r"\bnan\b")

    def test_large(self):
        page = self.report(SPECS / "document_causal.attn", "--bind", "Sq=131072", "--in", "doc=random")
        self.assertLess(len(page.source), LARGEST)
        # Noise, whose picture and values would be long.
        spec = self.write("noise.attn", NOOP.replace("Sq = 16, Skv = 24", "Sq = 512, Skv = 512").replace(
            "outputs", "tensor on: bool[Sq, Skv]; mask on[q_idx, kv_idx]; outputs"))
        page = self.report(spec, "--in", "on=random")
        self.assertLess(len(page.source), LARGEST)
        self.assertEqual(page.data["cell"], [2, 2])  # the SVG of all scores has over a megabyte

    def test_everything_is_escaped(self):
        spec = self.write("evil.attn", f"# {EVIL}\n" + NOOP.replace(
            "outputs", "param  cut: i32;\n  mask q_idx < cut && kv_idx < cut;\n  outputs"))
        page = self.report(spec, name="<b>&.html")
        self.assertIn(EVIL, page.text)
        self.assertIn("q_idx < cut", page.text)
        self.assertNotIn("alert(1)</script>", page.source)
        self.assertEqual(len(page.all("script")), 2)
        self.assertEqual(page.all("b"), [])
        self.assertEqual(page.data["conditions"][0]["text"], "q_idx < cut")

    def test_warnings_are_at_their_lines(self):
        spec = self.write("warned.attn", NOOP.replace("outputs", "mask kv_idx < 0;\n  outputs"))
        page = self.report(spec)
        warning = re.search(r"warning\[(W\d+)\]: (.*)", self.process.stderr)
        self.assertIn(f" ^^^^^^^^^^ warning[{warning[1]}]: {warning[2]}", page.text)
        self.assertEqual(len(page.all("div", "mark")), 1 + ("= help" in self.process.stderr))

    def test_a_condition_has_the_line_where_it_begins(self):
        spec = self.write("lines.attn", NOOP.replace(
            "outputs", "mask q_idx >= kv_idx\n && (kv_idx % 3 == 0\n || q_idx\n < 5);\n  outputs"))
        page = self.report(spec)
        line = 1 + spec.read_text().splitlines().index(" && (kv_idx % 3 == 0")
        self.assertIn(f"q_idx < 5line {line} ", re.sub(r"\s+", " ", page.text))

    def test_warning_of_memory(self):
        unfused = ("--strategy", "unfused", "--cudnn", self.folder)
        page = self.report(SPECS / "gemma2_local.attn", *unfused, compiled=True)
        self.assertRegex(page.text, r"  \^+ warning\[W0480\]: the forward needs 10.9 GB")
        self.attnc("report", SPECS / "gemma2_local.attn", *unfused, "--target", "h200", "-o",
                   self.folder / "denied.html", "--deny", "warnings", code=1)
        self.assertFalse((self.folder / "denied.html").exists())

    def test_without_cudnn(self):
        page = self.report(SPECS / "causal.attn")
        self.assertIn("Not known, since cuDNN could not be loaded", page.text)
        self.assertIn("FLOP per byte", page.text)

    def test_inputs(self):
        page = self.report(SPECS / "document_causal.attn", "--bind", "Sq=64", "--in", "doc=zeros")
        self.assertEqual(page.data["tensors"]["doc"], {"dims": [4, 64], "runs": "0*256"})
        self.assertIn("zeros", page.text)
        self.assertIn("cost model assumes", page.text)

    def test_infinite_values(self):
        spec = self.write("far.attn", NOOP.replace(
            "outputs", "tensor t: f32[Skv] = log(abs(float(i0) - 2)) / where(i0 < 2, 1.0, -0.0);\n"
            "  mask t[kv_idx] < 0.0;\n  outputs"))
        runs = self.report(spec).data["tensors"]["t"]["runs"].split(",")
        self.assertEqual(runs[2:5], ["Infinity", "NaN", "-Infinity*20"])

    def test_json(self):
        path = self.folder / "report.html"
        json = self.attnc_json("report", SPECS / "causal.attn", "-o", path, "--cudnn", self.folder,
                               "--engine", "cudnn", "--target", "h200")
        self.assertEqual(json, {"report": str(path), "bytes": path.stat().st_size})

    def test_refusals(self):
        path = self.folder / "report.html"
        wrong = self.write("wrong.attn", NOOP.replace("outputs o", "mask kv_idx < ;\n outputs o"))
        odd = self.write("odd.html", NOOP)
        open_size = self.write("open.attn", NOOP.replace("Sq = 16", "Sq"))
        damaged = self.write("damaged.attnplan", self.compile(NOOP).read_bytes()[:-100])
        cases = (("-o", 2, (wrong,)),
                 ("does not end in .html", 2, (SPECS / "causal.attn", "-o", "report.htm")),
                 ("this is the input file", 2, (odd, "-o", odd)),
                 ("expected", 1, (wrong, "-o", path)),
                 ("`noop` has no size for Sq", 2, (open_size, "-o", path)),
                 ("truncated", 6, (damaged, "-o", path)),
                 ("no such tensor or param", 2, (SPECS / "causal.attn", "-o", path, "--in", "doc=zeros")),
                 ("No such file", 4, (SPECS / "causal.attn", "-o", self.folder / "no" / "x.html",
                                      "--cudnn", self.folder)),
                 ("unknown target", 2, (SPECS / "causal.attn", "-o", path, "--target", "h2000")))
        for message, code, arguments in cases:
            with self.subTest(message):
                process = self.attnc("report", *arguments, code=code)
                self.assertIn(message, process.stderr)
                self.assertFalse(path.exists())

    def test_a_refused_backward(self):
        """The forward alone can be compiled."""
        spec = self.write("wide.attn", "attention wide { dims B = 1, Hq = 2, Sq = 64, D = 1024; "
                          "mask q_idx >= kv_idx; grad q, k, v; outputs o; }")
        path = self.folder / "wide.html"
        arguments = ("report", spec, "-o", path, "--target", "h200")
        self.attnc(*arguments, "--direction", "fwd")
        process = self.attnc(*arguments, "--format", "json", code=3)
        self.assertIn("error[unsupported]: backward: ", process.stderr)
        json = attnc.json.loads(process.stdout)
        self.assertEqual((json["bytes"], json["error"]["code"]), (path.stat().st_size, "unsupported"))
        self.assertIn(json["error"]["message"], process.stderr)
        self.assertEqual(Page(path).problems(), [])

    def test_a_refused_spec_has_a_page_that_says_why(self):
        page = self.report(SPECS / "sigmoid.attn", code=3)
        self.assertIn("cuDNN's fused kernels compute softmax, not sigmoid", page.text)
        self.assertIn("compute softmax, not sigmoid", self.process.stderr)

    def test_the_picture_in_the_readme_is_of_this_page(self):
        """`ATTN_UPDATE_GOLDEN=1 tests/cli/report_test.py Report.test_the_picture_in_the_readme_is_of_this_page`
        draws it, in a Chromium. Predicted figures may differ a little."""
        picture, path = SOURCE / "docs" / "report.png", self.folder / "report.html"
        self.attnc("report", "specs/gemma2_local.attn", "-o", path, "--target", "h200", "--engine", "native",
                   folder=SOURCE)
        text = " ".join(Page(path).text.split())
        text = text[:text.index(" Strategies ")]
        if os.environ.get("ATTN_UPDATE_GOLDEN") == "1":
            screenshot.write(picture, path, text, size=(1000, 1008), scale=0.762)
        words, figures = screenshot.predictions(text)
        drawn_words, drawn_figures = screenshot.predictions(screenshot.text_of(picture))
        self.assertEqual(drawn_words, words, "docs/report.png is stale")
        self.assertEqual(len(figures), 2)
        for drawn, now in zip(drawn_figures, figures):
            self.assertLess(abs(drawn / now - 1), 0.1, "docs/report.png is stale")


if __name__ == "__main__":
    attnc.main()
