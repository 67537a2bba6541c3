"""Runs a module's `run(rank, ranks, store)` in this process and another one."""

import os
import pathlib
import subprocess
import sys


def run(module, folder):
    """`module`: its file runs rank 1 as a script; `folder`: of the store by which they meet."""
    script = pathlib.Path(module.__file__)
    store = str(folder / "store")
    other = subprocess.Popen(
        [sys.executable, script, "1", "2", store],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(script.parents[1])},
    )
    try:
        module.run(0, 2, store)
        output, _ = other.communicate(timeout=100)
    except BaseException:
        other.kill()
        print(other.communicate()[0])
        raise
    assert other.returncode == 0, output
