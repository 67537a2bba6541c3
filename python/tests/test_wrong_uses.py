"""What is said about wrong uses: a golden file, which ATTN_UPDATE_GOLDEN=1 writes."""

import os
import pathlib
import re

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
from wrong_uses import USES  # noqa: E402

GOLDEN = pathlib.Path(__file__).parent / "golden" / "wrong_uses.txt"


def said(name, folder):
    with pytest.raises(attn.Error) as caught:
        USES[name](folder)
    text = str(caught.value).replace(str(folder), "FOLDER")
    text = re.sub(r"\S*/(wrong_uses\.py):\d+", r"\1:LINE", text)
    text = re.sub(r"\d+ of \d+ bytes", "N of N bytes", text)  # of a plan, which has kernels' texts
    return f"== {name}\n{type(caught.value).__name__}: {text}\n"


def kept():
    parts = re.split(r"^(?=== )", GOLDEN.read_text(), flags=re.M) if GOLDEN.is_file() else []
    return {part.splitlines()[0].removeprefix("== "): part.rstrip("\n") + "\n" for part in parts if part}


@pytest.mark.parametrize("name", USES)
def test_wrong_use(name, tmp_path):
    text = said(name, tmp_path)
    if os.environ.get("ATTN_UPDATE_GOLDEN"):
        found = {**kept(), name: text}
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text("\n".join(found[name] for name in USES if name in found))
    assert text == kept()[name]


def test_no_text_is_left_over():
    assert list(kept()) == list(USES)
