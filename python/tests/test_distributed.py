"""attn.torch.distribute in two processes on the CPU; test_ranks_gpu.py has GPUs."""

import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

SCRIPT = pathlib.Path(__file__).with_name("ranks_on_cpu.py")


def test_two_processes(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])}
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(rank), "2", str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=200)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs):
        assert process.returncode == 0, "\n".join(outputs)
        assert output.count("check_") == 4
