"""older_systems_test.py BINARY..: whether the wheel's binaries can be linked with glibc 2.31, and the check of a
built wheel (.ci/check-wheel)."""
import importlib.machinery
import importlib.util
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

SOURCE = pathlib.Path(os.environ["ATTN_SOURCE_DIR"])
BINARIES = [pathlib.Path(path) for path in sys.argv[1:]]
OLDEST = (2, 31)
NEWEST = (2, 36)  # of systems that build the wheel: headers of a newer one call newer functions
# Functions that older systems have in libc_nonshared.a, which is linked statically.
NOT_SHARED = {"fstat", "fstatat", "lstat", "stat"}


def load(path):
    loader = importlib.machinery.SourceFileLoader("check_wheel", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


check_wheel = load(SOURCE / ".ci" / "check-wheel")


def oldest_versions():
    """The first version of each function in this system's glibc: `hypot` has 2.2.5 and 2.35."""
    found = {}
    for name in ("libc.so.6", "libm.so.6"):
        lines = subprocess.run(["ldd", BINARIES[0]], check=True, capture_output=True, text=True).stdout
        library = re.search(rf"{re.escape(name)} => (\S+)", lines)[1]
        for version, function in re.findall(r"\(?GLIBC_([\d.]+)\)? +(\S+)$", check_wheel.objdump("-T", library),
                                            re.MULTILINE):
            version = check_wheel.version_of(version)
            found[function] = min(found.get(function, version), version)
    return found


def defined_functions():
    text = (SOURCE / "cmake" / "older_glibc.cpp").read_text()
    names = set(re.findall(r"^\[\[gnu::visibility\(\"hidden\"\)\]\].*?(\w+)(?:\(| = )", text, re.MULTILINE))
    assert len(names) == 4, names
    return names


def build(compiler, library, text, *linked):
    source = library.with_suffix({"CC": ".c", "CXX": ".cpp"}[compiler])
    source.write_text(text)
    subprocess.run([os.environ[compiler], "-shared", "-fPIC", "-Wl,--no-as-needed", source, *linked, "-o", library],
                   check=True)


def wheel_of(folder, tag, *binaries, mark=check_wheel.MARK_OF_TYPES):
    wheel = folder / f"attnc-0.0.1-py3-none-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(mark, "")
        for binary in binaries:
            file.write(binary, binary.name)
    return str(wheel)


class OlderSystems(unittest.TestCase):
    @unittest.skipIf(check_wheel.version_of(platform.libc_ver()[1]) > NEWEST, "the wheel is built on Debian 12")
    def test_an_older_glibc_has_what_the_binaries_call(self):
        oldest, known = oldest_versions(), NOT_SHARED | defined_functions()
        for binary in BINARIES:
            imported = [name for name, family, _ in check_wheel.imported(binary) if family == "GLIBC"]
            self.assertGreater(len(imported), 3)
            new = [name for name in imported if oldest.get(name, OLDEST) > OLDEST and name not in known]
            self.assertEqual(new, [], f"{binary}: not in glibc 2.31; define it in cmake/older_glibc.cpp")

    def test_the_check_of_a_wheel(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            one, two = folder / "libone.so", folder / "libtwo.so"
            build("CC", one, "#include <stdio.h>\nvoid one(void) { puts(\"1\"); }\n")
            build("CXX", two, "void two() { throw 2; }\n", one)
            check = check_wheel.check
            self.assertEqual(check(wheel_of(folder, "manylinux_2_31_x86_64", one)), [])
            self.assertIn("libone.so needs puts of GLIBC_2.2.5",
                          check(wheel_of(folder, "manylinux_2_1_x86_64", one)))
            self.assertEqual(len(check(wheel_of(folder, "linux_x86_64", one))), 1)
            self.assertEqual(len(check(wheel_of(folder, "manylinux_2_31_x86_64"))), 1)
            self.assertEqual(len(check(wheel_of(folder, "manylinux_2_31_x86_64", one, mark="untyped"))), 1)
            self.assertEqual(check(wheel_of(folder, "manylinux_2_31_x86_64", two)),
                             [f"libtwo.so needs {one}", "libtwo.so needs libstdc++.so.6"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
