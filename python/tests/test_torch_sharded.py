"""DTensors, and parameters that FSDP divides, in two processes on the CPU, this one and another."""

import pytest

pytest.importorskip("torch")

import sharded_on_cpu  # noqa: E402
import two_processes  # noqa: E402


def test_two_processes(tmp_path):
    two_processes.run(sharded_on_cpu, tmp_path)
