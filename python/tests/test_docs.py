"""Runs the blocks ```python of docs/python.md, docs/jax.md and docs/serving.md, in order and in one namespace for each page, in
an empty folder. A block may say what it needs after the word: torch, gpu."""
import pathlib
import re

import pytest

from attn import plan

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
BLOCK = re.compile(r"^```python([a-z ]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def has(need):
    if need == "gpu":
        return plan.local_gpu() is not None
    try:
        __import__(need)
    except ImportError:
        return False
    return True


@pytest.mark.parametrize("name, least", [("python.md", 5), ("jax.md", 5), ("serving.md", 2)])
def test_the_manual_runs(name, least, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.with_name(name).read_text(encoding="utf-8"))
    assert len(blocks) >= least
    names = {"__name__": "manual"}
    for needs, block in blocks:
        if all(has(need) for need in needs.split()):
            exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102


def test_the_readme_runs():
    pytest.importorskip("torch")
    text = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    names = {}
    for needs, block in BLOCK.findall(text):
        if all(has(need) for need in needs.split()):
            exec(compile(block, "README.md", "exec"), names)  # noqa: S102


def test_the_error_in_the_manual_is_the_one_printed(capsys):
    text = PAGE.read_text(encoding="utf-8")
    block = next(block for _, block in BLOCK.findall(text) if "windw" in block)
    exec(compile("import attn\n" + block, str(PAGE), "exec"), {})  # noqa: S102
    assert f"```text\n{capsys.readouterr().out}```" in text
