"""Attentions on two GPUs, beside the reference: the checks of ranks_on_gpus.py. $ATTN_RANKS_PLANS names the
folder that rank_specs.py has prepared; without it, the plans are compiled first, which takes minutes."""

import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
    pytest.skip("these tests need 2 GPUs", allow_module_level=True)

import ranks_on_gpus  # noqa: E402

FOLDER = pathlib.Path(__file__).parent
TOGETHER = [name for name in ranks_on_gpus.CHECKS if name not in (*ranks_on_gpus.ALONE, *ranks_on_gpus.APART)]
RANKS = 2


def environment(**more):
    return {**os.environ, "PYTHONPATH": f"{FOLDER.parent}:{FOLDER}", **{name: str(x) for name, x in more.items()}}


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    if "ATTN_RANKS_PLANS" in os.environ:
        return pathlib.Path(os.environ["ATTN_RANKS_PLANS"])
    folder = tmp_path_factory.mktemp("plans")
    subprocess.run([sys.executable, FOLDER / "rank_specs.py", folder, "--target", "native", "--jobs", "8"],
                   check=True, env=environment())
    return folder


def start(plans, *checks, timeout, **more):
    """What the ranks print, and their exit codes; None for one that had to be killed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, FOLDER / "ranks_on_gpus.py", plans, *checks],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=RANKS, MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                            **more))
        for rank in range(RANKS)
    ]
    outputs, codes, end = [], [], time.monotonic() + timeout
    for process in processes:
        try:
            outputs.append(process.communicate(timeout=max(1, end - time.monotonic()))[0])
            codes.append(process.returncode)
        except subprocess.TimeoutExpired:
            process.kill()
            outputs.append(process.communicate()[0] + "\n(killed: it did not end)")
            codes.append(None)
    return outputs, codes


@pytest.fixture(scope="module")
def together(plans):
    return start(plans, *TOGETHER, timeout=420)


@pytest.mark.parametrize("name", TOGETHER)
def test_check(together, name):
    outputs, _ = together  # of rank 0, whose lines have the errors of all
    found = [line for line in outputs[0].splitlines() if line.startswith((f"ok {name} ", f"FAILED {name}:"))]
    assert found, "it did not come to this:\n" + "\n".join(output[-3000:] for output in outputs)
    assert found[0].startswith("ok "), found[0]


def test_ranks_end(together):
    outputs, codes = together
    assert None not in codes, "\n".join(output[-3000:] for output in outputs)


@pytest.mark.parametrize("name", ranks_on_gpus.ALONE)
def test_lost_rank(plans, name):
    outputs, codes = start(plans, name, timeout=90)
    assert codes[0] == 0, "\n".join(output[-3000:] for output in outputs)
    assert codes[1] not in (0, None) and f"ok {name} " in outputs[0]


@pytest.mark.parametrize("register, checks", [
    (0, ("cuda_graph", "cuda_graph_of_large_tensors")), (1, ranks_on_gpus.APART)])
def test_expandable_segments(plans, register, checks):
    outputs, codes = start(plans, *checks, timeout=150, NCCL_GRAPH_REGISTER=register,
                           PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert codes == [0] * RANKS, "\n".join(output[-3000:] for output in outputs)
