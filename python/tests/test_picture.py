"""Attention.draw: pictures of masks."""
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import attn


def documents():
    return attn.compile(
        "attention documents(window = 8) { dims B = 2, Hq = 2, Sq = 32, D = 64; tensor doc: i32[B, Skv];"
        " param near: i32; mask doc[b, q_idx] == doc[b, kv_idx] && abs(q_idx - kv_idx) < window + near; }"
    )


def test_the_share_is_that_of_the_mask():
    doc = np.array([[0] * 16 + [1] * 16, [0] * 32])
    picture = documents().draw(doc=doc, near=24)
    assert picture.share == pytest.approx((2 * 16 * 16 + 32 * 32) / (2 * 32 * 32))
    assert str(picture) == "documents: 75 % of the scores are visible"
    assert ElementTree.fromstring(picture._repr_svg_()).tag.endswith("svg")


def test_sizes_and_parameters_replace_those_of_the_spec():
    picture = attn.compile("gemma2_local", window=4).draw(Sq=16)
    assert (picture.facts["rows"], picture.facts["columns"]) == (16, 16)
    assert picture.share == pytest.approx((1 + 2 + 3 + 4 * 13) / 256)
    assert attn.compile("gemma2_local").draw(Sq=16, window=1).share == pytest.approx(1 / 16)


def test_files(tmp_path):
    causal = attn.compile("causal", Sq=32)
    picture = causal.draw(tmp_path / "causal.svg", theme="dark")
    assert (tmp_path / "causal.svg").read_text(encoding="utf-8") == picture.svg
    causal.draw(tmp_path / "causal.png", blocks=(4, 8))
    assert (tmp_path / "causal.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(attn.ArgumentError, match=r"a file .svg or .png, not causal.pdf"):
        causal.draw("causal.pdf")
    with pytest.raises(attn.CompilerError):
        causal.draw(tmp_path / "no folder" / "causal.svg")


def test_wrong_values_are_named():
    with pytest.raises(attn.BindingError, match="doc") as raised:
        documents().draw(doc=np.zeros((2, 7), dtype=int), near=1)
    assert "npy" not in str(raised.value)
    with pytest.raises(attn.ArgumentError, match="has no dimension or parameter `widow`"):
        documents().draw(widow=3)


def test_captured_tensors_are_drawn():
    torch = pytest.importorskip("torch")
    doc = torch.arange(32) // 8
    bias = torch.zeros(32, requires_grad=True)

    def biased(score, b, h, q_idx, kv_idx):
        return score + bias[kv_idx]

    def same(b, h, q_idx, kv_idx):
        return doc[q_idx] == doc[kv_idx]

    f = attn.compile(score_mod=biased, mask_mod=same, B=1, Hq=1, Sq=32, D=64)
    assert f.draw().share == pytest.approx(0.25)
    assert f.draw(score=True, h=0).facts["score"]["before"] == 1
