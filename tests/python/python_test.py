"""python_test.py [[--except] PATTERN..]: runs pytest on python/tests, or the files in it that a pattern matches (or none
does), in the environment of .ci/setup-python or a Python that has pytest."""
import fnmatch
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["ATTN_SOURCE_DIR"])
SKIPPED = 77  # exit code for a skipped test (ctest)


def has(python, *modules):
    # Only looked for: to import PyTorch takes seconds.
    finds = f"import importlib.util as util; assert all(map(util.find_spec, {modules}))"
    command = [python, "-c", finds]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def find_python():
    """A Python that has PyTorch if there is one: without, tests that use it are skipped."""
    candidates = [str(SOURCE / ".deps" / "python" / "bin" / "python"),
                  os.environ.get("PYTHON", "python3"), sys.executable, "/usr/bin/python3"]
    for modules in (("numpy", "pytest", "torch"), ("numpy", "pytest")):
        for python in candidates:
            if has(python, *modules):
                return python
    return None


def files_of(patterns):
    """The test files, or those that a pattern matches; with --except before the patterns, those that none matches."""
    names = sorted(path.name for path in (SOURCE / "python" / "tests").glob("test_*.py"))
    if not patterns:
        return names
    wanted = patterns[0] != "--except"
    return [name for name in names
            if any(fnmatch.fnmatch(name, pattern) for pattern in patterns) == wanted]


def main():
    python = find_python()
    if python is None:
        print("skipped: no Python with numpy and pytest (.ci/setup-python makes one)")
        return SKIPPED
    tests = pathlib.Path("python", "tests")
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider",
               *(str(tests / name) for name in files_of(sys.argv[1:]))]
    return subprocess.run(command, cwd=SOURCE, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
