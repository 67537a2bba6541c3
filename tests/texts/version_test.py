"""The version is stated once: in the Python package."""
import re
import unittest

from texts import files, read

SOURCE_OF_THE_VERSION = "python/attn/__init__.py"


def version():
    return re.search(r'^__version__ = "(\d+\.\d+\.\d+)"$', read(SOURCE_OF_THE_VERSION), re.MULTILINE)[1]


class Version(unittest.TestCase):
    def test_the_newest_changes_are_of_this_version(self):
        self.assertEqual(re.search(r"^## (\S+?),? ", read("CHANGELOG.md"), re.MULTILINE)[1], version())

    def test_it_is_stated_nowhere_else(self):
        places = {str(place) for suffix in (".txt", ".cmake", ".in", ".toml", ".json", ".py", ".h", ".hpp", ".cpp", ".md")
                  for place in files(suffix) if not str(place).startswith("tests/")
                  and re.search(rf"(?<![\w.]){re.escape(version())}(?![\w.])", read(place))}
        self.assertEqual(places - {"CHANGELOG.md"}, {SOURCE_OF_THE_VERSION})

    def test_cmake_and_the_wheel_take_it_from_there(self):
        self.assertIn(f"/{SOURCE_OF_THE_VERSION})", read("CMakeLists.txt"))
        self.assertRegex(read("CMakeLists.txt"), r"project\(attnc VERSION \$\{ATTN_VERSION\} ")
        self.assertIn(f'input = "{SOURCE_OF_THE_VERSION}"', read("pyproject.toml"))


if __name__ == "__main__":
    unittest.main()
