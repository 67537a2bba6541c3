"""Configures the build with parts left out, and within another project. Nothing is compiled: the tests
check the generated build files."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["ATTN_SOURCE_DIR"])
CMAKE, CC, CXX = os.environ["CMAKE"], os.environ["CC"], os.environ["CXX"]
PARENT = SOURCE / "tests" / "package" / "parent"
# Options of the build that runs the tests.
PASSED = [f"-D{option}" for option in os.environ["OPTIONS"].split("|")]


def output_of(*command):
    process = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                             check=False, timeout=1800)
    if process.returncode != 0:
        raise AssertionError(f"{command}: {process.returncode}\n{process.stdout}{process.stderr}")
    return process.stdout


class Configure(unittest.TestCase):
    def configure(self, source, *options):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        output_of(CMAKE, "-G", "Ninja", "-S", source, "-B", temporary.name,
                  f"-DCMAKE_C_COMPILER={CC}", f"-DCMAKE_CXX_COMPILER={CXX}", *PASSED, *options)
        return pathlib.Path(temporary.name)

    def commands(self, build, target):
        return output_of("ninja", "-C", build, "-t", "commands", target)

    def test_without_benchmarks(self):
        build = self.configure(SOURCE, "-DATTN_BUILD_BENCH=OFF")
        commands = self.commands(build, "all")
        self.assertNotIn("-lattn_", commands)
        self.assertNotIn("bench/host_time", commands)
        self.assertIn("bench/libattn_bench.a", self.commands(build, "attnc"))

    def test_runtime_alone(self):
        build = self.configure(SOURCE, "-DATTN_BUILD_COMPILER=OFF",
                               "-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON")
        commands = self.commands(build, "all")
        self.assertNotRegex(commands, "/(compiler|tests|examples|bench)/")
        self.assertIn("libattn.so", commands)

    def test_within_a_c_project(self):
        build = self.configure(PARENT, f"-DATTN_SOURCE_DIR={SOURCE}")
        commands = self.commands(build, "all")
        self.assertNotIn("-Werror", commands)
        self.assertNotIn("compiler/", commands)
        self.assertNotIn("nodriver", commands)
        self.assertNotIn("ANTLR", (build / "CMakeCache.txt").read_text())
        self.assertNotIn("attn.pc", (build / "attn" / "cmake_install.cmake").read_text())
        link = self.commands(build, "app_static").splitlines()[-1]
        self.assertRegex(link, r"-o app_static .*libattn\.a .*-lstdc\+\+")

    def test_options_of_a_parent(self):
        build = self.configure(PARENT, f"-DATTN_SOURCE_DIR={SOURCE}", "-DATTN_WERROR=ON",
                               "-DATTN_INSTALL=ON")
        self.assertIn("-Werror", self.commands(build, "attn_base"))
        self.assertIn("attn.pc", (build / "attn" / "cmake_install.cmake").read_text())


if __name__ == "__main__":
    unittest.main()
