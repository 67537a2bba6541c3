"""report: what the scripts of its page do, in a headless Chromium. Skipped if there is none."""
import re
import tempfile

import attnc
import browser
from attnc import NOOP, SOURCE, SPECS

# Evaluates the conditions at up to SCORES scores of each panel, and counts those where they differ from
# the picture: the reference's scores, or blocks that the analysis found to be full or empty.
# Lists of so many keys that a page does not have them.
SMALLER = {name: (("--bind", "B=2", "--bind", "Skv=256", "--bind", "most=32"),)
           for name in ("chosen_fp8", "chosen_tokens")}

AGREES = """(() => {
  const SCORES = 4096;
  const {mask} = report;
  const count = {looked: 0, unknown: 0, differs: []};
  if (!mask) return count;
  const step = Math.max(1, Math.ceil(Math.sqrt(mask.rows * mask.columns / SCORES)));
  for (const panel of mask.panels) {
    for (let row = 0; row < mask.rows; row += step) {
      for (let column = row % step; column < mask.columns; column += step) {
        const block = mask.block(panel, row, column);
        const results = mask.results(panel, row, column);
        ++count.looked;
        if (results.includes(undefined) && !results.includes(0)) ++count.unknown;
        else if (block !== PARTIAL && results.includes(0) !== (block === EMPTY)) {
          count.differs.push([panel.title, row, column]);
        }
      }
    }
  }
  return count;
})()"""
# A spec with every operation that the page evaluates; its scores are evaluated by the reference.
OPERATIONS = """attention every(window = 5) {
  dims    B = 2, Hq = 2, Hkv = 1, Sq = 40, Skv = 48, D = 64;
  dtype   bf16;
  layout  bshd;
  align   bottom_right;
  tensor  doc: i32[B, Skv] = i1 // 7 - i0;
  tensor  id: i64[Skv] = i0 // 9;
  tensor  on: bool[Skv] = i0 % 3 != 1;
  tensor  level: f32[Hq] = 1.5 * (i0 + 1);
  param   shift: i32;
  mask    (q_idx - 20) // 3 != -2 && (q_idx - 20) % 5 != 3 && kv_idx * 1.5 % 4.0 != 0.5;
  mask    max(q_idx, kv_idx) - min(q_idx, kv_idx) < 30;
  mask    on[kv_idx] || doc[b, kv_idx] == doc[b, min(q_idx, 47)] || (kv_idx & 3) == 1;
  mask    ((kv_idx ^ q_idx) | 8) << 2 >> 1 != 24 || ~kv_idx == -7;
  mask    sqrt(kv_idx * 1.0) / 0.75 <= level[h] * 4.0 || floor(kv_idx / 4.0) != ceil(q_idx / 8.0);
  mask    where(kv_idx > window, abs(kv_idx - shift), -kv_idx) != 4;
  mask    kv_idx * 65536 * 65536 == 0 && !(kv_idx == 11) && (b == 0 || h >= 0 || kv_idx != 3);
  mask    rsqrt(kv_idx + 1.0) < 0.95 || int(q_idx / 7.0) != int(on[kv_idx]) + 1;
  mask    id[kv_idx] * 1000 + (long(q_idx) << 33) != 2000 && level[min(id[kv_idx], 1)] > 1.0;
  mask    !(on[kv_idx] && doc[b, kv_idx] < h) || q_idx // 2.0 == kv_idx // 2.0;
  outputs o;
}
"""


class Report(attnc.Case):
    @classmethod
    def setUpClass(cls):
        profile = tempfile.TemporaryDirectory()
        cls.addClassCleanup(profile.cleanup)
        cls.browser = browser.Browser(browser.find(), profile.name)
        cls.addClassCleanup(cls.browser.close)

    def tearDown(self):
        complaints, self.browser.complaints = self.browser.complaints, []
        self.assertEqual(complaints, [])

    def open(self, spec, *arguments, **how):
        self.assertIn(self.open_if_valid(spec, *arguments, **how), (0, 3))

    def open_if_valid(self, spec, *arguments, **how):
        """Returns the exit code. The page of a spec that cuDNN's engine refuses has all but a program."""
        path = self.folder / "report.html"
        process = attnc.run("report", spec, "-o", path, "--target", "h200", "--engine", "cudnn", "--cudnn",
                            self.folder, *arguments)
        if process.returncode in (0, 3):
            self.browser.open(path, **how)
        return process.returncode

    def value(self, expression):
        return self.browser.evaluate(expression)

    def point_at(self, row, column):
        """Moves the pointer to a score of the first panel. Returns where that is."""
        self.value("document.getElementById('picture').scrollIntoView({block: 'center'})")
        x, y = self.value(f"""(() => {{
          const panel = report.mask.panels[0];
          const at = report.picture.onPage(report.picture.middle({{panel, row: {row}, column: {column}}}));
          return [at.x, at.y];
        }})()""")
        self.browser.mouse("mouseMoved", x, y)
        return x, y

    def tooltip(self):
        return self.value("document.getElementById('tooltip').innerText").split("\n")

    def zoom(self):
        return self.value("report.picture.zoom")

    def test_tooltip(self):
        self.open(SPECS / "gemma2_local.attn")
        self.point_at(6000, 1500)
        # A pixel is 17 scores wide.
        at = re.fullmatch(r"q_idx (\d+), kv_idx (\d+)", self.tooltip()[0])
        self.assertLess(abs(int(at[1]) - 6000) + abs(int(at[2]) - 1500), 40)
        self.assertEqual(self.tooltip()[1:], ["hidden", "by q_idx - kv_idx < 4096 (line 9)",
                                              "empty block 46, 11 of 128 \u00d7 128"])
        self.assertEqual(self.value("[...document.querySelectorAll('#conditions li')].map((e) => e.className)"),
                         ["holds", "fails"])
        self.point_at(1500, 6000)
        self.assertEqual(self.tooltip()[2], "by q_idx >= kv_idx (line 9)")
        self.point_at(6000, 4000)
        self.assertEqual(self.tooltip()[1:], ["visible", "full block 46, 31 of 128 \u00d7 128"])
        self.browser.mouse("mouseMoved", 2, 2)
        self.assertTrue(self.value("document.getElementById('tooltip').hidden"))

    def test_tooltip_of_scores_that_values_decide(self):
        self.open(SPECS / "document_causal.attn", "--bind", "Sq=64", "--in", "doc=random:3")
        self.point_at(60, 0)
        self.assertEqual(self.tooltip()[0], "q_idx 60, kv_idx 0")
        self.assertIn("by doc[b, q_idx] == doc[b, kv_idx] (line 11)", self.tooltip())

    def test_zoom(self):
        self.open(SPECS / "gemma2_local.attn")
        self.assertEqual(self.zoom(), 1)
        self.assertTrue(self.value("document.getElementById('zoom-out').disabled"))
        self.value("document.getElementById('zoom-in').click()")
        self.assertEqual(self.zoom(), 2)
        self.value("document.getElementById('zoom-out').click()")
        self.assertEqual(self.zoom(), 1)
        x, y = self.point_at(6000, 6000)
        for _ in range(7):
            self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240, modifiers=2)
        self.assertEqual(self.zoom(), 128)
        self.point_at(6000, 6001)
        self.assertEqual(self.tooltip(), ["q_idx 6000, kv_idx 6001", "hidden", "by q_idx >= kv_idx (line 9)",
                                          "partial block 46, 46 of 128 \u00d7 128"])
        # The scores of the partial block are drawn, in the colours of the legend.
        self.assertGreater(self.value("report.picture.drawn"), 100)
        self.assertRegex(self.value("document.getElementById('zoom').textContent"),
                         r"^\d+\u00d7: q_idx \d+ to \d+, kv_idx \d+ to \d+$")
        self.assertEqual(self.pixels((6000, 6000), (6000, 6001)), [[0x2f, 0x5f, 0xd0], [0xe9, 0xed, 0xf4]])
        # Dragging moves it, as far as there is something.
        before = self.value("report.picture.view.x")
        self.browser.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.browser.mouse("mouseMoved", x - 60, y, button="left", buttons=1)
        self.browser.mouse("mouseReleased", x - 60, y, button="left", clickCount=1)
        self.assertGreater(self.value("report.picture.view.x"), before)
        self.value("document.getElementById('zoom-all').click()")
        self.assertEqual(self.value("[report.picture.zoom, report.picture.view.x]"), [1, 0])

    def pixels(self, *scores):
        """The colours that scores are drawn in."""
        return self.value(f"""(() => {{
          const {{picture, mask}} = report;
          const {{width, height}} = picture.canvas;
          const {{data}} = picture.canvas.getContext("2d").getImageData(0, 0, width, height);
          return {list(map(list, scores))}.map(([row, column]) => {{
            const at = picture.middle({{panel: mask.panels[0], row, column}});
            const x = Math.round((at.x - picture.view.x) * picture.scale);
            const y = Math.round((at.y - picture.view.y) * picture.scale);
            return [...data.slice(4 * (y * width + x), 4 * (y * width + x) + 3)];
          }});
        }})()""")

    def test_keyboard(self):
        self.open(SPECS / "causal.attn", "--bind", "Sq=32")
        self.value("document.getElementById('picture').focus()")
        self.browser.key("ArrowDown")
        first = re.fullmatch(r"q_idx (\d+), kv_idx (\d+)", self.tooltip()[0])
        self.browser.key("ArrowRight")
        self.browser.key("ArrowUp", shift=True)
        self.assertEqual(self.tooltip()[0], f"q_idx {int(first[1]) - 2}, kv_idx {int(first[2]) + 1}")
        self.browser.key("+")
        self.assertEqual(self.zoom(), 2)
        self.browser.key("0")
        self.assertEqual(self.zoom(), 1)
        self.browser.key("Escape")
        self.assertTrue(self.value("document.getElementById('tooltip').hidden"))

    def test_clauses_are_lit_together(self):
        self.open(SPECS / "gemma2_local.attn")
        self.value("document.querySelector('g.node[data-clauses=\"3\"]').scrollIntoView({block: 'center'})")
        for name, kind in (("lines", "div.line"), ("nodes", "g.node")):
            self.assertEqual(self.value(f"document.querySelectorAll('{kind}.lit').length"), 0, name)
        x, y = self.value("""(() => {
          const box = document.querySelector('g.node[data-clauses="3"] rect').getBoundingClientRect();
          return [box.x + box.width / 2, box.y + box.height / 2];
        })()""")
        self.browser.mouse("mouseMoved", x, y)
        lit = self.value("[...document.querySelectorAll('#spec .lit code')].map((e) => e.textContent.trim())")
        self.assertEqual(lit, ["scale   1 / sqrt(D);"])

    def test_colours(self):
        self.open(SPECS / "causal.attn", "--bind", "Sq=32", scheme="dark")
        colours = """[getComputedStyle(document.body).backgroundColor,
                      getComputedStyle(document.querySelector('.picture .i5')).fill]"""
        self.assertEqual(self.value(colours), ["rgb(10, 14, 20)", "rgb(91, 141, 239)"])
        self.browser.scheme("light")
        self.assertEqual(self.value(colours), ["rgb(246, 247, 250)", "rgb(47, 95, 208)"])
        self.browser.scheme("dark", media="print")
        self.assertEqual(self.value(colours), ["rgb(255, 255, 255)", "rgb(47, 95, 208)"])
        self.assertEqual(self.value("getComputedStyle(document.querySelector('.tools')).display"), "none")

    def test_narrow_windows_do_not_scroll_sideways(self):
        self.open(SPECS / "gemma2_local.attn", width=400)
        self.assertLessEqual(self.value("document.documentElement.scrollWidth"), 400)

    def test_evaluates_what_the_reference_does(self):
        """At the sizes of the specs, where most pictures are of blocks, and at small ones, where they are of
        scores."""
        of_scores = 0
        for path in sorted(SPECS.glob("*.attn")):
            for size in SMALLER.get(path.stem, ((), ("--bind", "Sq=96"))):
                with self.subTest(path.name, size=size):
                    if self.open_if_valid(path, *size) not in (0, 3):
                        self.assertTrue(size)  # other sizes of the spec do not fit
                        continue
                    count = self.value(AGREES)
                    self.assertEqual([count["differs"], count["unknown"]], [[], 0])
                    self.assertGreater(count["looked"], 0)
                    of_scores += (are_scores := self.value("report.mask.areScores"))
                if are_scores:
                    break
        self.assertGreater(of_scores, 50)

    def test_evaluates_every_operation(self):
        self.open(self.write("every.attn", OPERATIONS), "--in", "shift=9")
        unused = self.value("Object.keys(OPERATIONS).filter((op) => !data.nodes.some((node) => node.op === op))")
        self.assertEqual(unused, [])
        count = self.value(AGREES)
        self.assertEqual([count["differs"], count["unknown"]], [[], 0])
        visible = self.value("report.mask.panels.map((panel) => panel.map.filter((c) => c === FULL).length)")
        self.assertTrue(all(0 < each < 40 * 48 for each in visible))

    def test_evaluates_infinite_values(self):
        spec = self.write("far.attn", NOOP.replace(
            "outputs", "tensor t: f32[Skv] = where(i0 < 9, 1.0, -1.0) / float(i0 % 3);\n"
            "  mask t[kv_idx] < 0.0 || t[kv_idx] > 1.0e30 && 1.0 / (t[kv_idx] * 0.5) < 1.0;\n  outputs"))
        self.open(spec)
        count = self.value(AGREES)
        self.assertEqual([count["differs"], count["unknown"]], [[], 0])

    def test_keeps_runs_of_equal_elements(self):
        """A tensor of many elements has a short text, and takes no more memory than that."""
        self.open(SPECS / "document_causal.attn", "--bind", "Sq=8192", "--in", "doc=zeros")
        self.assertEqual(self.value("report.mask.evaluator.tensors.doc.values.length"), 1)
        self.assertEqual(self.value("report.mask.results(report.mask.panels[0], 8191, 8191)"), [1, 1])

    def test_knows_the_operations_of_the_ir(self):
        """All but functions that are not rounded alike everywhere, and what masks do not have."""
        table = (SOURCE / "docs" / "ir.md").read_text().split("<!-- ops: begin")[1]
        operations = set(re.findall(r"^\| \d+ \| `(\w+)` \|", table.split("<!-- ops: end")[0], re.M))
        self.open(SPECS / "causal.attn")
        known = set(self.value("[...Object.keys(OPERATIONS), ...Object.keys(INDEXES)]"))
        leaves = {"const_bool", "const_int", "const_wide", "const_real", "dim", "param", "load", "select", "and", "or"}
        rows = (SOURCE / "compiler" / "ir" / "real_functions.def").read_text()
        inexact = {"pow", *re.findall(r"^ATTN_REAL_FUNCTION\((\w+),", rows, re.M)} - {"sqrt", "rsqrt"}
        others = {"score", "unit", "index", "output", "depth", "row_sum"}
        self.assertEqual(operations - known, leaves | inexact | others)
        self.assertEqual(known - operations, set())

    def test_does_not_guess(self):
        """Where a value is unknown to the page, the picture says what it knows."""
        spec = self.write("inexact.attn", NOOP.replace("outputs", "mask tanh(kv_idx / 8.0) < 0.9; outputs"))
        self.open(spec)
        self.assertEqual(self.value("report.mask.results(report.mask.panels[0], 3, 3)"), [None])
        self.point_at(3, 3)
        self.assertEqual(self.tooltip(), ["q_idx 3, kv_idx 3", "visible"])
        self.point_at(3, 20)
        self.assertEqual(self.tooltip(), ["q_idx 3, kv_idx 20", "hidden"])


if __name__ == "__main__":
    if browser.find() is None:
        attnc.skip("there is no Chromium (.ci/setup-browser installs one)")
    attnc.main()
