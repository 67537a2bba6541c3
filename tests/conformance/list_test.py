#!/usr/bin/env python3
"""The oracle, the inputs and specs/README.md cover exactly the existing specs.

    list_test.py SOURCE_FOLDER
"""

import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(SOURCE / "tests" / "oracle"))
import gradients  # noqa: E402
import oracle  # noqa: E402
from inputs import EXTRAS  # noqa: E402

SPECS = {path.stem for path in (SOURCE / "specs").glob("*.attn")}


class Lists(unittest.TestCase):
    def test_every_spec_has_a_meaning_in_the_oracle(self):
        self.assertEqual(set(oracle.SPECS), SPECS - {"mxfp8"})  # oracle/mxfp8.py

    def test_every_learned_tensor_has_a_gradient_in_the_oracle(self):
        learn = re.compile(r"^  learn ", re.MULTILINE)
        paths = (SOURCE / "specs").glob("*.attn")
        learning = {path.stem for path in paths if learn.search(path.read_text(encoding="utf-8"))}
        self.assertEqual(set(gradients.LEARNED), learning)
        self.assertLessEqual(set(gradients.SLOPES), SPECS)

    def test_inputs_are_for_specs(self):
        self.assertLessEqual(set(EXTRAS), SPECS)

    def test_the_page_lists_every_spec_once(self):
        page = (SOURCE / "specs" / "README.md").read_text(encoding="utf-8")
        listed = re.findall(r"^\| \[(\w+)\]\(\1\.attn\) \| .+ \|$", page, re.MULTILINE)
        self.assertEqual(sorted(listed), sorted(SPECS))

    def test_the_page_of_the_language_lists_the_library(self):
        page = (SOURCE / "docs" / "language.md").read_text(encoding="utf-8")
        words = set(re.findall(r"`(\w+)(?:\(|`)", page))
        for path in (SOURCE / "specs" / "lib").glob("*.attn"):
            functions = re.findall(r"^fn (\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
            self.assertEqual(set(functions) - words, set(), path.name)


if __name__ == "__main__":
    unittest.main()
