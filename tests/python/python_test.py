"""python_test.py [FILE..]: runs pytest on python/tests, or files in it, in the environment of .ci/setup-python or a Python that has pytest."""
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


def main():
    python = find_python()
    if python is None:
        print("skipped: no Python with numpy and pytest (.ci/setup-python makes one)")
        return SKIPPED
    tests = pathlib.Path("python", "tests")
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider",
               *(str(tests / name) for name in sys.argv[1:] or [""])]
    return subprocess.run(command, cwd=SOURCE, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
