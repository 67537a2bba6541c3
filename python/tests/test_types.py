"""Types of the package: mypy finds nothing, signatures say types, and callers get those of what they call."""

import inspect
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("mypy")

import attn  # noqa: E402
import attn.torch  # noqa: E402

SOURCE = pathlib.Path(os.environ.get("ATTN_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
CACHE = SOURCE / "build" / "mypy"  # with which a second run takes a second

USES = """
from typing import assert_type
import torch, attn, attn.torch
from torch.nn.attention.flex_attention import AuxOutput, AuxRequest

q = torch.zeros(1, 2, 16, 8)
assert_type(attn.torch.flex_attention(q, q, q), torch.Tensor)
assert_type(attn.torch.flex_attention(q, q, q, return_lse=True), tuple[torch.Tensor, torch.Tensor])
assert_type(attn.torch.flex_attention(q, q, q, return_aux=AuxRequest(lse=True)), tuple[torch.Tensor, AuxOutput])
attn.torch.flex_attention(q, q, q, mask_mod=lambda b, h, i, j: i >= j)
f = attn.compile("sliding_window", B=1, window=4)
o = f(q, q, q)
o, lse = f(q, k=q, v=q)
f.warm(dtype=torch.bfloat16, device="cuda", Sq=128)
assert_type(f.sizes, dict[str, int | None])
"""
WRONG = {
    "attn.torch.flex_attention(1, q, q)": "arg-type|call-overload",
    "attn.compile(3, engine=4)": "arg-type",
    "attn.Unsupported": "attr-defined",
    "f.warm(dtype=1)": "arg-type",
}


def mypy(*arguments, folder=SOURCE):
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", str(CACHE), *arguments], cwd=folder,
                          capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(SOURCE / "python")})
    return done.returncode, done.stdout + done.stderr


def test_the_package():
    status, said = mypy()
    assert status == 0, said


def test_callers(tmp_path):
    lines = [*USES.splitlines(), *WRONG]
    (tmp_path / "uses.py").write_text("\n".join(lines) + "\n")
    _, said = mypy("--config-file", str(SOURCE / "pyproject.toml"), str(tmp_path / "uses.py"))
    found = [line for line in said.splitlines() if "error:" in line and "uses.py" in line]
    first = len(USES.splitlines()) + 1
    assert [int(line.split(":")[1]) for line in found] == list(range(first, first + len(WRONG))), said
    for line, kinds in zip(found, WRONG.values()):
        assert any(f"[{kind}]" in line for kind in kinds.split("|")), line


def functions(thing, name):
    """The function, or the public methods and properties of a class."""
    if inspect.isfunction(thing):
        yield name, thing
    for key, value in vars(thing).items() if inspect.isclass(thing) else ():
        if key.startswith("_") and key not in ("__init__", "__call__"):
            continue
        value = value.fget if isinstance(value, property) else getattr(value, "__func__", getattr(value, "func", value))
        if inspect.isfunction(value):
            yield f"{name}.{key}", value


def test_signatures_say_types():
    modules = {attn: attn.__all__, attn.torch: attn.torch.__all__,
               attn.torch.hugging_face: ("register", "attention", "mask")}
    found = [(name, key) for module, names in modules.items() for each in names
             for name, function in functions(getattr(module, each), f"{module.__name__}.{each}")
             for key, kind in function.__annotations__.items() if "Any" in str(kind)]
    assert found == []
