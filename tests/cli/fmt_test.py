"""fmt: formats in place or checks; every spec of the repository is formatted."""
import os
import stat

import attnc
from attnc import NOOP, SOURCE, SPECS

UGLY = """# What it is.
attention f(w=3){dims B=2,Hq=4,Sq=8,D=16; # sizes
mask (q_idx>=kv_idx)&&(q_idx-kv_idx<w);
}"""

NEAT = """# What it is.
attention f(w = 3) {
  dims    B = 2, Hq = 4, Sq = 8, D = 16;  # sizes
  mask    q_idx >= kv_idx && q_idx - kv_idx < w;
}
"""


class Fmt(attnc.Case):
    def test_in_place(self):
        path = self.write("x.attn", UGLY)
        path.chmod(0o640)
        process = self.attnc("fmt", path)
        self.assertEqual((process.stdout, process.stderr), ("", ""))
        self.assertEqual(path.read_text(encoding="utf-8"), NEAT)
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o640)
        self.assertEqual(os.listdir(self.folder), ["x.attn"])

    def test_what_is_neat_is_not_written(self):
        path = self.write("x.attn", NEAT)
        os.utime(path, (1, 1))
        self.attnc("fmt", path)
        self.assertEqual(path.stat().st_mtime, 1)

    def test_standard_input(self):
        self.assertEqual(self.attnc("fmt", "-", stdin=UGLY).stdout, NEAT)
        self.assertEqual(self.attnc("fmt", "-", stdin=NEAT).stdout, NEAT)

    def test_a_link_stays_one(self):
        path = self.write("x.attn", UGLY)
        link = self.folder / "link.attn"
        link.symlink_to("x.attn")
        self.attnc("fmt", link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(path.read_text(encoding="utf-8"), NEAT)

    def test_check_names_the_files_that_differ(self):
        ugly, neat = self.write("ugly.attn", UGLY), self.write("neat.attn", NEAT)
        self.assertEqual(self.attnc("fmt", "--check", neat).stdout, "")
        self.assertEqual(self.attnc("fmt", "--check", neat, ugly, code=1).stdout, f"{ugly}\n")
        self.assertEqual(ugly.read_text(encoding="utf-8"), UGLY)
        self.assertEqual(self.attnc("fmt", "--check", "-", stdin=UGLY, code=1).stdout, "<stdin>\n")

    def test_a_file_with_errors_is_left_alone(self):
        bad = self.write("bad.attn", UGLY.replace("mask", "masks"))
        worse = self.write("worse.attn", UGLY.replace(">=", ">= ,"))
        good = self.write("good.attn", UGLY)
        process = self.attnc("fmt", bad, worse, good, code=1)
        self.assertIn("error[E0204]", process.stderr)
        self.assertIn("error[E0102]", process.stderr)
        self.assertIn("masks", bad.read_text(encoding="utf-8"))
        self.assertIn(">= ,", worse.read_text(encoding="utf-8"))
        self.assertEqual(good.read_text(encoding="utf-8"), NEAT)

    def test_json_says_what_is_wrong(self):
        bad = self.write("bad.attn", UGLY.replace("mask", "masks"))
        good, none = self.write("good.attn", NEAT), self.folder / "none.attn"
        first, second, third = self.attnc_json("fmt", bad, good, none, code=4)["files"]
        self.assertEqual([entry["ok"] for entry in (first, second, third)], [False, True, False])
        self.assertEqual([entry["code"] for entry in first["diagnostics"]], ["E0204"])
        self.assertEqual(first["errors"], 1)
        self.assertEqual(second, {"file": str(good), "ok": True, "differs": False})
        self.assertEqual(third["error"]["code"], "io")
        self.assertEqual(self.attnc_json("convert", bad, code=1)["errors"], 1)

    def test_what_the_spec_means_does_not_matter(self):
        text = NEAT.replace("< w", "< unknown")
        self.assertEqual(self.attnc("fmt", "-", stdin=text).stdout, text)

    def test_json(self):
        json = self.attnc("convert", "-", stdin=UGLY).stdout
        path = self.write("x.attn.json", json.replace("\n", ""))
        self.attnc("fmt", path)
        self.assertEqual(path.read_text(encoding="utf-8"), json)

    def test_files_that_cannot_be_read_or_written(self):
        self.assertIn("none.attn", self.attnc("fmt", self.folder / "none.attn", code=4).stderr)

    def test_every_spec_is_neat(self):
        folders = [SOURCE / "tests" / "gpu" / "forms", SOURCE / "bench" / "variants"]
        files = [*SPECS.rglob("*.attn"), *(file for each in folders for file in each.glob("*.attn"))]
        self.assertGreaterEqual(len(files), 110)
        self.assertEqual(self.attnc("fmt", "--check", *files).stdout, "")

    def test_usage(self):
        self.attnc("fmt", code=2)
        self.assertEqual(self.attnc("fmt", "-", stdin=NOOP).stdout, NOOP)


if __name__ == "__main__":
    attnc.main()
