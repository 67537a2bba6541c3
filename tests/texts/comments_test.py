"""Comments begin with a subject or a verb: "Of .." has neither until the name below is read."""
import re
import unittest

from texts import files, read

SUFFIXES = (".c", ".cpp", ".cuh", ".def", ".h", ".hpp", ".py", ".cmake", "CMakeLists.txt", ".yml")
BEGINS = re.compile(r'^(?:[^"#]*[;,{] +)?\s*(?:(?://|#|/\*|\*) ?|""")Of ')
GOES_ON = re.compile(r"^\s*(//|#|\*|/\*).*[^.:;]$")


class Comments(unittest.TestCase):
    def test_none_begins_with_of(self):
        for place in files(*SUFFIXES):
            before = ""
            for number, line in enumerate(read(place).split("\n"), 1):
                if " Of " in line or '"Of ' in line:
                    begins = BEGINS.match(line) and not GOES_ON.match(before)
                    self.assertFalse(begins, f"{place}:{number}: {line}")
                before = line


if __name__ == "__main__":
    unittest.main()
