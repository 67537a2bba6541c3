"""The examples in examples/python run, here by the reference."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).parents[2]


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "python" / name, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_training_with_a_learned_bias():
    said = run("train_learned_bias.py", "--steps", "3", "--length", "64", "--device", "cpu")
    assert said.count("loss") == 2


def test_decoding_with_a_paged_cache():
    said = run("paged_decode.py", "--steps", "70", "--batch", "2", "--device", "cpu")
    assert said.startswith("70 steps: largest difference from dense attention")


def test_packed_documents():
    said = run("packed_documents.py", "--length", "60", "--device", "cpu")
    assert "the same again for the same seed: True" in said


def test_training_on_several_gpus(monkeypatch):
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    said = run("train_on_several_gpus.py", "--steps", "2", "--length", "64", "--layers", "1")
    assert said.startswith("1 ranks: ") and said.count("loss") == 2
