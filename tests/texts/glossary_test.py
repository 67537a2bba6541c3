"""The glossary: each word has a row, what it names exists, and pages use no other words for the same."""
import re
import unittest

from texts import SOURCE, files, read

PAGE = "docs/glossary.md"
# What pages say, and the word of the glossary for it.
OTHERS = {
    r"--lowering\b": "--strategy",
    r"\blowerings\b": "strategies",
    r"\bC(?:\+\+)? programs?\b": "applications",
    r"\bpart attentions?\b": "parts",
    r"\battention specs?\b": "specs",
    r"\bunmasked\b": "visible",
    r"\bKV[- ]blocks?\b": "blocks",
}


def rows():
    lines = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in read(PAGE).split("\n") if line.startswith("| ")]
    return lines[1:]


class Glossary(unittest.TestCase):
    def test_each_word_has_one_row(self):
        words = [word for row in rows() for word in row[0].split(", ")]
        self.assertGreaterEqual(len(words), 20)
        self.assertEqual(len(words), len(set(words)))
        self.assertEqual({len(row) for row in rows()}, {3})

    def test_what_it_names_exists(self):
        sources = "\n".join(read(place) for folder in ("runtime", "compiler")
                            for place in files(".h", ".hpp", ".def", under=folder))
        for word, _, where in rows():
            for name in re.findall(r"`([^`]+)`", where):
                with self.subTest(word=word, name=name):
                    if "/" in name:
                        self.assertTrue((SOURCE / name).exists() or (SOURCE / "compiler" / name).exists())
                    elif re.fullmatch(r"[\w:]+", name):
                        self.assertRegex(sources, rf"\b{name.split('::')[-1]}\b")

    def test_pages_use_its_words(self):
        for page in files(".md", under="docs") + ["README.md", "specs/README.md"]:
            text = read(page)
            for other, word in OTHERS.items():
                found = re.search(other, text)
                self.assertIsNone(found, f"{page}: {found and found[0]}: say {word}")


if __name__ == "__main__":
    unittest.main()
