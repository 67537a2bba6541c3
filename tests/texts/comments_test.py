"""Comments begin with a subject or a verb. "Of ..", "By .." or "For one thread .." have neither until the name below
is read."""
import re
import unittest

from texts import files, read

SUFFIXES = (".c", ".cpp", ".cuh", ".def", ".h", ".hpp", ".py", ".cmake", "CMakeLists.txt", ".yml")
BEGINS = re.compile(r'^(?:[^"#]*[;,{] +)?\s*(?:(?://|#|/\*|\*) ?|""")(?:Of|By|For example|For one thread)\b')
GOES_ON = re.compile(r"^\s*(//|#|\*|/\*).*[^.:;]$")
WORDS = ("Of ", "By ", "For ")


def faults(text):
    """The lines, with their numbers, on which a comment begins so."""
    lines = text.split("\n")
    return [(number, line) for number, line in enumerate(lines, 1)
            if any(word in line for word in WORDS) and BEGINS.match(line) and not GOES_ON.match(lines[number - 2])]


class Comments(unittest.TestCase):
    def test_they_begin_with_a_subject_or_a_verb(self):
        found = [f"{place}:{number}: {line}" for place in files(*SUFFIXES)
                 for number, line in faults(read(place))]
        self.assertEqual("\n".join(found), "")

    def test_what_is_found(self):
        for text in ("// Of a thread.", "int sizes;  // Of a thread.", '    """By one."""', "# By name.",
                     "// For one thread.", "// A sentence.\n// Of a thread."):
            self.assertEqual(len(faults(text)), 1, text)
        for text in ("// Sizes\n// Of", "// of a thread", "// Office.", 'f("// Of x")', "int sizes;  // of a thread"):
            self.assertEqual(faults(text), [], text)


if __name__ == "__main__":
    unittest.main()
