"""docs/tour.md: each block of Python is run, in order and in one namespace, and what it prints, and shows
by its last expression, is what stands below it. ATTN_UPDATE_GOLDEN=1 rewrites the page and its pictures."""
import ast
import contextlib
import io
import os
import pathlib
import re

import pytest

pytest.importorskip("torch")

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "tour.md"
CELL = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n.*?^```\n)?(?:\n!\[\]\(.*?\)\n)?", re.MULTILINE | re.DOTALL
)


def run(code, names):
    """What a notebook's cell prints, and the picture that it shows, or None."""
    tree, printed = ast.parse(code), io.StringIO()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, str(PAGE), "exec"), names)  # noqa: S102
        value = None if last is None else eval(compile(ast.Expression(last.value), str(PAGE), "eval"), names)
    return printed.getvalue(), getattr(value, "_repr_svg_", lambda: None)()


def test_the_tour_is_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    update = os.environ.get("ATTN_UPDATE_GOLDEN") == "1"
    names, pictures = {"__name__": "tour"}, {}

    def cell(found):
        text, svg = run(found["code"], names)
        shown = f"```python\n{found['code']}```\n"
        if text:
            shown += f"\n```text\n{text}```\n"
        if svg is not None:
            name = f"{len(pictures) + 1}.svg"
            pictures[name] = svg
            shown += f"\n![](tour/{name})\n"
        return shown

    before = PAGE.read_text(encoding="utf-8")
    after = CELL.sub(cell, before)
    if update:
        PAGE.write_text(after, encoding="utf-8")
    assert after == before or update
    for name, svg in pictures.items():
        path = PAGE.parent / "tour" / name
        if update:
            path.write_text(svg, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == svg
    assert len(pictures) >= 5
