"""draw: the pictures of the gallery, formats, what is refused."""
import os
import re
import shlex
import struct
import xml.etree.ElementTree

import attnc
import gallery
from attnc import NOOP, SOURCE, SPECS

PICTURES = SOURCE / "docs" / "pictures"
RUN = re.compile(r"M(\d+) (\d+)h(\d+)v(\d+)h-\d+z")  # of cells, in a path
LARGEST = 30_000  # bytes, of a picture in docs
HUGE = 99_999_999_999_999_999_999  # does not fit in 64 bits


class Draw(attnc.Case):
    def draw(self, name, *arguments, **expected):
        return self.attnc("draw", SPECS / f"{name}.attn", *arguments, **expected)

    def test_gallery(self):
        """Rewrites the page and the pictures if ATTN_UPDATE_GOLDEN=1."""
        updates = os.environ.get("ATTN_UPDATE_GOLDEN") == "1"
        page = SOURCE / "docs" / "gallery.md"
        if updates:
            page.write_text(gallery.page(), encoding="utf-8")
        self.assertEqual(page.read_text(encoding="utf-8"), gallery.page())
        names = []
        for name, values in gallery.arrays().items():
            if updates:
                (PICTURES / name).write_bytes(values)
            self.assertEqual((PICTURES / name).read_bytes(), values)
            names.append(name)
        for name, spec, options in gallery.pictures():
            options = options.replace("@docs", f"@{SOURCE}/docs")
            with self.subTest(name):
                drawn = self.folder / f"{name}.svg"
                self.assertEqual(self.draw(spec, *shlex.split(options), "-o", drawn).stdout, "")
                text = drawn.read_text(encoding="utf-8")
                self.assertLess(len(text), LARGEST)
                if updates:
                    (PICTURES / drawn.name).write_text(text, encoding="utf-8")
                self.assertEqual((PICTURES / drawn.name).read_text(encoding="utf-8"), text)
                names.append(drawn.name)
        self.assertEqual(sorted(path.name for path in PICTURES.iterdir()), sorted(names))
        self.assertEqual({path.stem for path in SPECS.glob("*.attn")},
                         {spec for _, spec, _ in gallery.pictures()})

    def test_text(self):
        process = self.draw("gemma2_local", "--bind", "Sq=64", "--bind", "window=16")
        self.expect_golden("draw-gemma2_local.txt", process.stdout)
        process = self.draw("gemma2_local")
        self.expect_golden("draw-gemma2_local-blocks.txt", process.stdout)

    def test_ranks(self):
        small = ("--bind", "Sq=32")
        self.expect_golden("draw-ranks.txt", self.draw("longformer", "--ranks", "3", *small, "--bind",
                                                       "window=4").stdout)
        # More than digits tell apart; more lines than columns, so that each is of one rank.
        self.expect_golden("draw-ranks-many.txt", self.draw("sliding_window", "--ranks", "40", "--bind", "Sq=4096",
                                                            "--bind", "window=512", "--bind", "Hkv=1", "--bind",
                                                            "Hq=1", "--bind", "B=1").stdout)
        # What differs by head is drawn apart.
        heads = self.write("heads.attn", """attention f { dims B = 1, Hq = 4, Hkv = 2, Sq = 64, D = 8; shard heads;
          mask q_idx >= kv_idx; }""")
        picture = self.attnc_json("draw", heads, "--ranks", "2")
        self.assertEqual([panel["places"] for panel in picture["panels"]],
                         [[[0, 0], [0, 1]], [[0, 2], [0, 3]]])
        self.assertEqual(picture["ranks"], ["rank 0: 50 % of the work", "rank 1: 50 % of the work"])
        self.assertEqual(picture["sharding"], "2 ranks, 2 groups of heads")
        self.assertNotIn("computed", picture["panels"][0])
        for more, message in ((("--ranks", "2", "--parts"), "--ranks, --score and --parts colour the same cells"),
                              (("--ranks", "65"), "a picture has room for at most 64 ranks"),
                              (("--link", "400g"), "--link, --network and --ranks-per-host need --ranks"),
                              (("--ranks", "2", "--link", "fast"), "`fast` is not a link")):
            self.assertIn(message, self.draw("causal", *small, *more, code=2).stderr)

    def test_a_picture_needs_no_head_dimension(self):
        def spec(name, d, clauses):
            return self.write(name, f"attention f {{ dims B = 1, Hq = 2, Sq = 32, D{d}; {clauses} }}")

        clauses = "mask kv_idx <= q_idx; score score - 0.5 * (q_idx - kv_idx); scale 1 / D; sink D;"
        for more in ([], ["--score"], ["--blocks", "4,8"]):
            pictures = [self.attnc_json("draw", spec("f.attn", d, clauses), *more) for d in ("", " = 8")]
            self.assertEqual(*pictures)
        reads = (("mask kv_idx < D;", []), ("score score / Dv;", ["--score"]),
                 ("tensor t: bool[Skv, D]; mask t[kv_idx, 0];", []), (clauses, ["--parts"]),
                 (clauses, ["--ranks", "2"]))
        for clauses, more in reads:
            process = self.attnc("draw", spec("f.attn", "", clauses), *more, code=2)
            self.assertIn("--bind D=64", process.stderr)
        self.attnc("draw", spec("f.attn", "", "score score / Dv;"))

    def test_json(self):
        picture = self.attnc_json("draw", SPECS / "gemma2_local.attn")
        panel, = picture["panels"]
        self.assertEqual([panel[key] for key in ("full", "partial", "empty")], [1488, 96, 2512])
        self.assertTrue(panel["exact"] and panel["exact_share"])
        self.assertEqual(panel["visible"], 4096 * 8192 - 4096 * 4095 // 2)
        heads = self.attnc_json("draw", SPECS / "alibi.attn", "--score", "--bind", "Sq=16")
        self.assertTrue(heads["by_head"])
        self.assertEqual(heads["score"]["change"][1], 0)
        self.assertFalse(heads["score"]["has_nan"])
        parts = self.attnc_json("draw", SPECS / "prefix_lm.attn", "--parts", "--bind", "Sq=512",
                                "--strategy", "parts")
        self.assertEqual([parts["strategy"], len(parts["parts"])], ["parts", 2])
        self.assertEqual(parts["panels"][0]["computed"], 256 * 256 + 256 * (384 + 512) / 2)

    def test_values_by_default_that_are_no_numbers(self):
        """Heads that look alike are one panel. Of a tensor whose rows differ by a NaN, and by the sign of a zero."""
        header = "attention x { dims B = 1, Hq = 4, Sq = 64, D = 64; tensor t: f32[Hq, Skv] = "
        for value, mask, visible in (
                ("i1 + log(float(i0) - 1)", "t[h, kv_idx] >= 0.0 || kv_idx == 0", [64, 64 * 64]),
                ("(i1 + 1.0) / where(i0 == 0, 0.0, -0.0)", "t[h, kv_idx] > 0.0", [64 * 64, 0])):
            spec = self.write("x.attn", header + f"{value}; mask {mask}; outputs o; }}")
            panels = self.attnc_json("draw", spec)["panels"]
            self.assertEqual([panel["visible"] for panel in panels], visible)

    def test_svg_is_xml_and_says_how_many_scores(self):
        path = self.folder / "causal.svg"
        self.draw("causal", "--bind", "Sq=16", "-o", path)
        root = xml.etree.ElementTree.parse(path).getroot()
        namespace = "{http://www.w3.org/2000/svg}"
        self.assertEqual(root.tag, namespace + "svg")
        self.assertEqual(root.find(namespace + "desc").text, "136 of 256 scores are visible")

    def test_cells_are_the_scores(self):
        """Cells are the scores of a batch and a head, with a captured tensor, as the picture has them."""
        size, ids = 24, [0] * 5 + [1] * 9 + [2] * 10
        header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': (2, {size})}}".ljust(117) + "\n"
        (self.folder / "doc.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) +
                                              header.encode() +
                                              struct.pack(f"<{2 * size}i", *[0] * size, *ids))
        spec = self.write("spec.attn", f"""attention t {{
            dims B = 2, Hq = 4, Hkv = 1, Sq = {size}, Skv = Sq, D = 64;
            tensor doc: i32[B, Sq];
            mask doc[b, q_idx] == doc[b, kv_idx] && q_idx - kv_idx >= h - 3;
            outputs o; }}""")
        path = self.folder / "drawn.svg"
        for batch, head in ((1, 0), (1, 2), (0, 3)):
            self.attnc("draw", spec, "--in", f"doc=@{self.folder / 'doc.npy'}", "--b", batch, "--h",
                       head, "-o", path)
            shown = set()
            for x, y, width, height in RUN.findall(path.read_text(encoding="utf-8")):
                shown |= {(row, column) for row in range(int(y), int(y) + int(height))
                          for column in range(int(x), int(x) + int(width))}
            doc = ids if batch == 1 else [0] * size
            self.assertEqual(shown, {(q, kv) for q in range(size) for kv in range(size)
                                     if doc[q] == doc[kv] and q - kv >= head - 3})

    def test_parts(self):
        """Parts are drawn for each strategy, also where pictures have blocks instead of scores."""
        for strategy in ("composite", "native", "segments", "block_sparse", "unfused"):
            arguments = ("document_causal", "--parts", "--strategy", strategy)
            text = self.draw(*arguments, "--b", 0, "--bind", "Sq=128").stdout
            self.assertIn(f"strategy {strategy}: ", text)
            self.assertIn("computed, but hidden", text)
        self.expect_golden("draw-parts.txt", self.draw("gemma2_local", "--bind", "Sq=512", "--bind",
                                                       "window=128", "--parts", "--strategy",
                                                       "native").stdout)
        large = self.attnc_json("draw", SPECS / "causal.attn", "--parts", "--strategy", "composite",
                                "--bind", "Sq=131072")
        self.assertEqual(large["panels"][0]["computed"], 1024 * 1025 // 2 * 128 * 128)

    def test_plan(self):
        plan = self.compile(SPECS / "gemma2_local.attn", "--bind", "Sq=1024", "--bind", "window=300",
                            "--strategy", "native")
        bound = ("gemma2_local", "--bind", "Sq=1024", "--bind", "window=300")
        self.assertEqual(self.attnc("draw", plan).stdout, self.draw(*bound).stdout)
        self.assertEqual(self.attnc("draw", plan, "--parts").stdout,
                         self.draw(*bound, "--parts", "--strategy", "native").stdout)
        refused = self.attnc("draw", plan, "--parts", "--strategy", "composite", code=2)
        self.assertIn("have no meaning for a plan", refused.stderr)

    def test_png(self):
        path = self.folder / "causal.png"
        self.draw("causal", "--bind", "Sq=16", "-o", path)
        light = path.read_bytes()
        self.assertEqual(light[:8], b"\x89PNG\r\n\x1a\n")
        self.draw("causal", "--bind", "Sq=16", "-o", path, "--theme", "dark")
        self.assertNotEqual(path.read_bytes(), light)

    def test_blocks_are_no_larger_than_the_scores(self):
        picture = self.attnc_json("draw", SPECS / "causal.attn", "--bind", "Sq=16", "--blocks",
                                  f"{2**63 - 1},8")
        self.assertEqual([picture["panels"][0][key] for key in ("cell", "cells")], [[16, 8], [1, 2]])

    def test_inputs(self):
        first = self.draw("document_causal", "--bind", "Sq=64", "--in", "doc=random:1", "--b", 0)
        second = self.draw("document_causal", "--bind", "Sq=64", "--in", "doc=random:2", "--b", 0)
        self.assertNotEqual(first.stdout, second.stdout)
        self.assertEqual(first.stdout, self.draw("document_causal", "--bind", "Sq=64", "--in",
                                                 "doc=random:1", "--b", 0).stdout)
        self.assertEqual(first.stderr, "")
        everything = self.draw("document_causal", "--bind", "Sq=64", "--in", "doc=zeros")
        self.assertIn("50.8 % of scores", everything.stdout)

    def test_inputs_that_are_not_given_are_named(self):
        self.assertIn("inputs that are not given: doc=random\n",
                      self.draw("document", "--bind", "Sq=64", "--b", 0).stderr)
        self.assertEqual(self.draw("causal", "--bind", "Sq=64").stderr, "")
        drawn = self.attnc_json("draw", SPECS / "document.attn", "--bind", "Sq=64")
        self.assertEqual(drawn["inputs"], {"doc": "random"})
        # Only params and tensors that are read are listed.
        drawn = self.attnc_json("draw", SPECS / "alibi_slopes.attn", "--bind", "Sq=64")
        self.assertEqual(drawn["inputs"], {})

    def test_every_spec_can_be_drawn(self):
        for path in sorted(SPECS.glob("*.attn")):
            with self.subTest(path.name):
                self.assertIn("% of scores", self.attnc("draw", path).stdout)

    def test_what_is_left_out(self):
        text = self.attnc("draw", SPECS / "alibi.attn", "--bind", "Sq=16", "--score").stdout
        self.assertIn("26 more heads are not drawn", text)
        text = self.attnc("draw", SPECS / "padding.attn").stdout
        self.assertRegex(text, r"\d more batches are not drawn")

    def test_refusals(self):
        spec = self.write("open.attn", NOOP.replace("Sq = 16", "Sq"))
        cases = (("`noop` has no size for Sq", (spec,)),
                 ("neither .svg nor .png", (SPECS / "causal.attn", "-o", "x.jpg")),
                 ("--h 99: the spec has 32", (SPECS / "causal.attn", "--h", 99)),
                 ("'8' is not M,N", (SPECS / "causal.attn", "--blocks", "8")),
                 ("'8,0' is not M,N", (SPECS / "causal.attn", "--blocks", "8,0")),
                 (f"'{HUGE},1' is not M,N", (SPECS / "causal.attn", "--blocks", f"{HUGE},1")),
                 (f"'{HUGE}' is not a 64-bit integer", (SPECS / "causal.attn", "--b", HUGE)),
                 ("8 rows and 0 columns have no scores",
                  (SPECS / "noop.attn", "--bind", "Sq=8", "--bind", "Skv=0")),
                 ("too many for a picture", (SPECS / "causal.attn", "--blocks", "1,1")),
                 ("have no one change of the score", (SPECS / "causal.attn", "--score")),
                 ("colour the same cells", (SPECS / "causal.attn", "--score", "--parts")),
                 ("--score-at needs --score", (SPECS / "causal.attn", "--score-at", 3)),
                 ("'nan' is not a finite", (SPECS / "alibi.attn", "--score", "--score-at", "nan")),
                 ("'inf' is not a finite", (SPECS / "alibi.attn", "--score", "--score-at", "inf")),
                 ("--in slopes: the mask does not read it",
                  (SPECS / "alibi_slopes.attn", "--in", "slopes=@/nonexistent.npy")),
                 ("need --parts", (SPECS / "causal.attn", "--target", "h200")),
                 ("--theme needs -o", (SPECS / "causal.attn", "--theme", "dark")),
                 ("it has none: `tensor`, `learn` and `param` declare some", (SPECS / "causal.attn", "--in", "doc=zeros")))
        for message, arguments in cases:
            with self.subTest(message):
                self.assertIn(message, self.attnc("draw", *arguments, code=2).stderr)
        large = self.folder / "large.png"
        for columns in (900_000, 1_050_000):
            refused = self.draw("causal", "--bind", "Sq=1", "--bind", f"Skv={columns}", "--blocks",
                                "1,1", "-o", large, code=2)
            self.assertRegex(refused.stderr, r"a PNG of .* pixels is too large(.|\n)*--blocks")
            self.assertFalse(large.exists())
        refused = self.draw("noop", "--parts", "--strategy", "segments", code=3)
        self.assertIn("no mask tells segments apart", refused.stderr)


if __name__ == "__main__":
    attnc.main()
