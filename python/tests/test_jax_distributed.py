"""attn.jax in several processes (jax.distributed): jax_in_processes.py on the CPU, and on two GPUs if there are."""

import os
import pathlib
import socket
import subprocess
import sys

import pytest

jax = pytest.importorskip("jax")
RANKS = 2
FOLDER = pathlib.Path(__file__).parent


def gpus():
    try:
        return len(jax.devices("cuda"))
    except RuntimeError:
        return 0


def run(platform):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    environment = {**os.environ, "XLA_FLAGS": "", "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                   "PYTHONPATH": f"{FOLDER.parent}:{FOLDER}"}
    ranks = [subprocess.Popen([sys.executable, FOLDER / "jax_in_processes.py", platform, address, str(rank), str(RANKS)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
             for rank in range(RANKS)]
    try:
        texts = [each.communicate(timeout=200)[0] for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    assert [each.returncode for each in ranks] == [0] * RANKS, "\n".join(texts)


def test_two_processes():
    run("cpu")


@pytest.mark.skipif(gpus() < RANKS, reason="this test needs 2 GPUs")
def test_two_processes_on_gpus():
    run("cuda")
