"""Blocks ```cpp of the pages that begin with the name of a file, in a comment: their lines are in that file, one after
the other."""
import re
import unittest

from texts import files, read

BLOCK = re.compile(r"^```cpp\n// (\S+\.(?:cpp|h))\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def lines(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


class Excerpts(unittest.TestCase):
    def test_code_is_that_of_its_file(self):
        count = 0
        for page in files(".md", under="docs"):
            for name, block in BLOCK.findall(read(page)):
                count += 1
                with self.subTest(page=page, name=name):
                    self.assertIn("\n".join(lines(block)), "\n".join(lines(read(name))))
        self.assertGreater(count, 1, "too few blocks")


if __name__ == "__main__":
    unittest.main()
