"""DTensors, and parameters that FSDP divides, in two processes on the CPU, this one and another."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

import sharded_on_cpu  # noqa: E402


def test_two_processes(tmp_path):
    script = pathlib.Path(sharded_on_cpu.__file__)
    store = str(tmp_path / "store")
    other = subprocess.Popen([sys.executable, script, "1", "2", store], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True,
                             env={**os.environ, "PYTHONPATH": str(script.parents[1])})
    try:
        sharded_on_cpu.run(0, 2, store)
        output, _ = other.communicate(timeout=100)
    except BaseException:
        other.kill()
        print(other.communicate()[0])
        raise
    assert other.returncode == 0, output
