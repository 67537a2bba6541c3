"""Wrong command lines, and what is said: all in one golden file, so that the messages can be read
together. Each is followed by its exit code."""
import re
import shlex

import attnc
from attnc import NOOP

MISTAKES = [
    "",
    "chekc noop.attn",
    "Check noop.attn",
    "noop.attn",
    "noop.attnplan",
    "cache lst",
    "cache",
    "help chekc",
    "check",
    "check nop.attn",
    "check empty",
    "check noop.attn --format jsn",
    "check noop.attn --strict",
    "check noop.attn --deny errors",
    "check noop.attn --quiet --verbose",
    "-q check noop.attn -v",
    "check noop.attn --colour never",
    "compile noop.attn --target h200",
    "compile noop.attn --targt h200 -o x.attnplan",
    "compile noop.attn -target h200 -o x.attnplan",
    "compile noop.attn --target h2000 -o x.attnplan",
    "compile noop.attn -o x.attnplan --target",
    "compile noop.attn --target h200 --target a100 -o x.attnplan",
    "compile noop.attn other.attn -o x.attnplan",
    "compile noop.attn --engine natve -o x.attnplan",
    "compile noop.attn --engine native --strategy composite -o x.attnplan",
    "compile noop.attn --without redundnt -o x.attnplan",
    "compile noop.attn --timeout soon -o x.attnplan",
    "compile noop.attn --timeout 0 -o x.attnplan",
    "compile noop.attn -o noop.attn",
    "compile noop.attn --target h200 -o none/x.attnplan",
    "explain noop.attn --bind Sq",
    "explain noop.attn --bind Sq=1,2",
    "run noop.attn --direction forward",
    "run noop.attn --bind Sq=1 --bind Sq=2",
    "run noop.attn --backend reference --in z=zeros",
    "run noop.attn --backend reference --in qs=zeros",
    "run noop.attn --backend reference --in do=zeros",
    "run noop.attn --backend reference --engine native",
    "draw noop.attn --in q=zeros",
    "check noop.attn --bind x\x1b[2J",
    "check noop.attn --bind x\x1b[2J=1 --bind x\x1b[2J=1",
    "draw noop.attn --blocks 1,\x1b[2J",
    "draw noop.attn --h \x1b[2J",
    "cache prune --max-bytes \x1b[2J",
    "support noop.attn --jobs \x1b[2J",
    "run slow.attn --backend reference",
    "compile noop.attn --gpu h200 -o x.attnplan",
    "compile noop.attn --arch=sm_90 -o x.attnplan",
    "compile noop.attn -O3 -o x.attnplan",
    "compile noop.attn --heads 4 -o x.attnplan",
    "compile noop.attn --json -o x.attnplan",
    "compile noop.attn --half -o x.attnplan",
    "compile noop.attn --backward -o x.attnplan",
    "compile noop.attn h200 -o x.attnplan",
    "compile noop.attn Sq=64 -o x.attnplan",
    "compile noop.attn --target rtx4080 -o x.attnplan",
    "compile noop.attn --target orin -o x.attnplan",
    "compile noop.attn --target v100 -o x.attnplan",
    "compile noop.attn --target H100-SXM -o x.attnplan",
    "compile noop.attn --target cuda -o x.attnplan",
    "run noop.attn --cpu",
    "run noop.attn --backend reference --bind Sq 64",
    "check noop.attn --bind Sq 64",
    "check noop.attn --bind Sq:64",
    "check noop.attn --bind 'Sq = 64'",
    "explain Sq=64",
    "check param.attn --bind window=16",
    "run param.attn --backend reference",
    "run open.attn --backend reference --bind B=1",
    "check notes.md",
    "run param.attn --backend reference --in window=@a.npz",
    "backward noop.attn",
    "explain-code E201",
    "explain-code 0201",
    "explain-code W9999",
    "help flux",
    "help E0201",
    "support noop.attn --tier fast",
    "support",
    "inspect noop.attn",
    "convert noop.attn --to yaml",
    "cache prune --max-days never",
    "explain-code E9999",
    "target show h201",
    "target show",
    "completion tcsh",
]

# Takes hours on a hundred cores.
SLOW = """attention slow {
  dims  B = 1, Hq = 1, Sq = 1000000, Skv = 300000, D = 8;
  score tanh(tanh(tanh(tanh(score + tanh(sin(score) * cos(score) + tanh(sin(score * 2))))))) * 3;
}
"""

PARAM = """attention param {
  dims  B = 1, Hq = 1, Sq = 8, D = 8;
  param window: i32;
  mask  0 <= q_idx - kv_idx < window;
}
"""


class Mistakes(attnc.Case):
    def test_what_is_said(self):
        self.write("noop.attn", NOOP)
        self.write("slow.attn", SLOW)
        self.write("param.attn", PARAM)
        self.write("open.attn", "attention open {\n  dims B, Hq, Sq, D = 8;\n}\n")
        self.write("notes.md", "# Notes\n")
        self.write("a.npz", b"PK\x03\x04 and so on")
        (self.folder / "empty").mkdir()
        text = ""
        for line in MISTAKES:
            process = attnc.run(*shlex.split(line), folder=self.folder)
            self.assertNotIn(process.returncode, (0, 70), line)
            self.assertEqual(process.stdout, "", line)
            self.assertNotIn("\x1b", process.stderr, line)
            said = re.sub(r"(?m)about .* for |^.*Sq=.* takes.*$", "(by the machine) ", process.stderr)
            shown = line.replace("\x1b", "<ESC>")
            text += f"$ attnc {shown}".rstrip() + f"\n{said}[{process.returncode}]\n\n"
        self.expect_golden("mistakes.txt", text)

    def test_json(self):
        """With --format json or jsonl, however wrong the rest is, the error is also data."""
        self.write("noop.attn", NOOP)
        for line in ("check --format json", "check noop.attn --strict --format=json",
                     "chekc --format json", "cache --format json", "help chekc --format json",
                     "compile noop.attn --engine natve -o x --format json", "-q check -v noop.attn --format json",
                     "target show h201 --format json", "support --format jsonl", "verify --format=jsonl",
                     "check noop.attn --format jsonl", "chekc --format jsonl", "cache --format jsonl",
                     "support noop.attn --target h201 --format jsonl"):
            process = attnc.run(*line.split(), folder=self.folder)
            self.assertEqual(process.returncode, 2, line)
            error = attnc.json.loads(process.stdout)["error"]
            self.assertEqual(error["code"], "invalid_argument")
            self.assertIn(error["message"], process.stderr)
            self.assertEqual(process.stdout.count("\n") == 1, "jsonl" in line, line)


if __name__ == "__main__":
    attnc.main()
