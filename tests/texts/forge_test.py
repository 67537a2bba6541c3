"""What a forge, a container and pre-commit run exists: scripts, presets, targets, labels and packages."""
import json
import os
import re
import unittest

from texts import SOURCE, files, read

FILES = [*files(".yml", under=".github"), ".devcontainer/devcontainer.json", ".pre-commit-config.yaml", "Dockerfile"]
PATH = re.compile(r"(?<![\w/.$-])(?:\./)?((?:\.ci|cmake|tests|tools)/[\w./-]+|test(?= |$))", re.MULTILINE)


def presets(kind):
    return {preset["name"] for preset in json.loads(read("CMakePresets.json"))[kind]}


def cmake():
    return "\n".join(read(place) for place in files("CMakeLists.txt", ".cmake"))


def commands(place):
    """Its lines that run something: `run`, `entry`, RUN, COPY and postCreateCommand."""
    lines = re.findall(r"^ *(?:- run:|entry:|RUN|COPY|\"postCreateCommand\":) *(.+)$", read(place), re.MULTILINE)
    assert lines, place
    return lines


class Forge(unittest.TestCase):
    def test_scripts(self):
        found = set()
        for place in FILES:
            for line in commands(place):
                found |= set(PATH.findall(line))
        self.assertLessEqual({".ci/setup", ".ci/run", ".ci/build", ".ci/setup-python", "test", "tests/texts",
                              "cmake/check-sources"}, found)
        for path in found:
            with self.subTest(path):
                self.assertTrue((SOURCE / path).exists())
                self.assertTrue(os.access(SOURCE / path, os.X_OK))

    def test_presets_targets_and_labels(self):
        known = {"--preset": presets("configurePresets"), "--build --preset": presets("buildPresets"),
                 "ctest --preset": presets("testPresets")}
        labels = set(re.findall(r"[\w]+", " ".join(re.findall(r"LABELS +([\w\";${}]+)", cmake()))))
        for place in FILES:
            for line in commands(place):
                for before, name in re.findall(r"(ctest|--build|cmake) --preset (\w+)", line):
                    kind = {"ctest": "ctest --preset", "--build": "--build --preset"}.get(before, "--preset")
                    self.assertIn(name, known[kind], line)
                for name in re.findall(r"--target (\w+)", line):
                    self.assertRegex(cmake(), rf"add_(custom_target|executable)\({name}\b", line)
                for names in re.findall(r" -LE? \"([^\"]+)\"| -LE? (\w+)", line):
                    self.assertLessEqual(set("|".join(filter(None, names)).split("|")), labels, line)

    def test_what_runs_in_the_night_has_a_smaller_form(self):
        """CONTRIBUTING.md: what has none runs at every change."""
        self.assertIn("-LE '^nightly$'", read("test"))
        self.assertIn(".ci/run --all", read(".github/workflows/nightly.yml"))
        found = 0
        for place in files(".cpp", under="tests"):
            suites = set(re.findall(r"^TEST(?:_P|_F)?\((\w+),", read(place), re.MULTILINE))
            nightly = {suite for suite in suites if "Nightly" in suite}
            self.assertLessEqual({suite.replace("Nightly", "") for suite in nightly}, suites, place)
            found += len(nightly)
        self.assertGreater(found, 10)
        names = re.findall(r"^ *attn_nightly\(([^)]*)\)", cmake(), re.MULTILINE)
        self.assertEqual({name.endswith(".nightly") for line in names for name in line.split()}, {True})

    def test_yaml_has_no_tabs_and_json_is_json(self):
        json.loads(read(".devcontainer/devcontainer.json"))
        for place in FILES:
            self.assertNotIn("\t", read(place), place)

    def test_the_container_is_what_setup_supports(self):
        for place in ("Dockerfile", ".devcontainer/devcontainer.json"):
            self.assertIn("debian:12", read(place))
        self.assertIn("Debian 12", read("README.md"))

    def test_the_wheel_has_the_mark_of_types(self):
        self.assertTrue((SOURCE / "python" / "attn" / "py.typed").is_file())
        self.assertIn('wheel.packages = ["python/attn"]', read("pyproject.toml"))
        self.assertNotIn("py.typed", read(".gitignore"))


if __name__ == "__main__":
    unittest.main()
