#!/usr/bin/env python3
"""The window functions show the number of keys that docs/conventions.md gives for each library.

    conventions_test.py ATTNC
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy

ATTNC = sys.argv.pop(1)
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "conventions.md"
ROW = re.compile(r"^\|[^|]*\|[^|]*\|[^|]*\| ([^|]+) \| ([^|]+) \| `(\w+)\(([^)]*)\)` \|([^|]*)\|$", re.M)
ARGUMENTS = dict(w=6, left=4, right=3, lo=-5, hi=2, offset=0)
SIZE, ROW_IN_THE_MIDDLE = 32, 16

SPEC = """import "masks.attn";
attention window {{
  dims    B = 1, Hq = 1, Sq = {size}, Dqk = 8, Dv = {size};
  mask    {call};
}}
"""


class Conventions(unittest.TestCase):
    def visible(self, call):
        """The keys visible to the middle row, relative to it."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "w.attn").write_text(SPEC.format(size=SIZE, call=call), encoding="utf-8")
            numpy.save(folder / "v.npy", numpy.eye(SIZE)[None, None])
            command = [ATTNC, "run", "w.attn", "--backend", "reference", "--unrounded",
                       "--in", "v=@v.npy", "--out", "o=o.npy"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            weights = numpy.load(folder / "o.npy")[0, 0, ROW_IN_THE_MIDDLE]
        return list(numpy.flatnonzero(weights) - ROW_IN_THE_MIDDLE)

    def test_windows(self):
        rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
        self.assertGreaterEqual(len(rows), 16)
        for past, future, function, parameters, same in rows:
            with self.subTest(function):
                names = [name.strip() for name in parameters.split(",")]
                values = ", ".join(str(ARGUMENTS[name]) for name in names)
                first, last = (eval(text, {}, ARGUMENTS) for text in (past, future))
                expected = list(range(1 - first, last + 1))
                self.assertEqual(self.visible(f"{function}({values})"), expected)
                if same.strip():
                    arguments = eval(f"({same.strip()},)", {}, ARGUMENTS)
                    arguments = arguments[0] if isinstance(arguments[0], tuple) else arguments
                    call = f"{function}({', '.join(map(str, arguments))})"
                    self.assertEqual(self.visible(call), self.visible(f"window({ARGUMENTS['w']})"))


if __name__ == "__main__":
    unittest.main()
