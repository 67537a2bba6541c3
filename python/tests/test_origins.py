"""Errors about the spec of a traced mod name the line of Python."""

import sys

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402

TABLE, BIAS, DOC = torch.zeros(40), torch.zeros(2, 16, 16), torch.arange(16).int()


def line_of(function):
    code = getattr(function, "__code__")
    return next(number for number, text in enumerate(open(__file__, encoding="utf-8"), 1)
                if number >= code.co_firstlineno and text.rstrip().endswith("# here"))


def negative(score, b, h, q_idx, kv_idx):
    return score + TABLE[q_idx - kv_idx]  # here


def negative_in_one_dimension(score, b, h, i, j):
    return score * 2 + BIAS[h, i - j, j]  # here


def negative_in_turn(score, b, h, i, j):
    return score + BIAS[h][i][j - 1]  # here


def negative_in_a_helper(score, b, h, i, j):
    def read(at):
        return TABLE[at]  # here
    return score + read(i - j)


def negative_by_select(score, b, h, i, j):
    return score + torch.select(TABLE, 0, i - 1)  # here


def negative_twice(score, b, h, i, j):
    near = TABLE[i + j]
    return score + near + TABLE[i - 2 * j]  # here


def negative_shared(score, b, h, i, j):
    distance = (i - j) * 2 + 3
    far = TABLE[distance]  # here
    return score + far * far + torch.where(distance > 4, 1.0, 0.0)


PROPOSED = {
    negative: "TABLE[(q_idx - kv_idx) % 40]",
    negative_in_one_dimension: "BIAS[h, (i - j) % 16, j]",
    negative_in_turn: "BIAS[h][i][(j - 1) % 16]",
    negative_in_a_helper: "TABLE[(at) % 40]",
    negative_by_select: "TABLE[(q_idx - 1) % 40]",
    negative_twice: "TABLE[(i - 2 * j) % 40]",
    negative_shared: "TABLE[(distance) % 40]",
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mod", PROPOSED, ids=lambda mod: mod.__name__)
def test_negative_indexes(mod, dtype):
    q = torch.zeros(1, 2, 16, 8, dtype=dtype)
    with pytest.raises(attn.TraceError, match="indexes start at 0") as caught:
        attn.torch.flex_attention(q, q, q, mod)
    error = caught.value
    assert (error.filename, error.lineno) == (__file__, line_of(mod))
    text = str(error)
    assert "{" not in text and f"{__file__}:{error.lineno}" in text and error.source_line in text
    if sys.version_info >= (3, 11):
        assert f"write `{PROPOSED[mod]}`" in text
        assert "^" in text
    else:
        assert "% " in text


def test_the_caret_is_under_the_expression():
    if sys.version_info < (3, 11):
        pytest.skip("Python does not know")
    with pytest.raises(attn.TraceError) as caught:
        attn.compile(score_mod=negative, B=1, Hq=2, Sq=16, D=8)
    lines = str(caught.value).splitlines()
    at = next(place for place, line in enumerate(lines) if "^" in line)
    assert lines[at - 1][lines[at].index("^"):].startswith("TABLE[q_idx - kv_idx]")
    assert lines[at].count("^") == len("TABLE[q_idx - kv_idx]")


def test_what_is_proposed_works():
    q = torch.randn(1, 2, 16, 8)
    table = torch.randn(40)
    found = attn.torch.flex_attention(q, q, q, lambda s, b, h, i, j: s + table[(i - j) % 40])
    rows = torch.arange(16)
    scores = q @ q.mT * 8**-0.5 + table[rows[:, None] - rows]
    torch.testing.assert_close(found, scores.softmax(-1) @ q, atol=1e-5, rtol=1e-5)


def too_large(b, h, q_idx, kv_idx):
    return DOC[q_idx + kv_idx] == 0  # here


def too_far_a_shift(score, b, h, q_idx, kv_idx):  # here
    return score + (q_idx << 40)


def too_low_by_value(score, b, h, q_idx, kv_idx):
    return score + TABLE[DOC[q_idx] - 3]  # here


@pytest.mark.parametrize("mod, error, words", [
    (too_large, attn.TraceError, "reaches 30, but `DOC` has size 16"),
    (too_far_a_shift, attn.TraceError, "shift by 40: integers have 32 bits"),
    (too_low_by_value, attn.BindingError, "index 0 is -3")], ids=lambda x: getattr(x, "__name__", ""))
def test_other_errors(mod, error, words):
    q = torch.zeros(1, 2, 16, 8)
    mods = {"mask_mod": mod} if mod is too_large else {"score_mod": mod}
    with pytest.raises(error, match=words) as caught:
        attn.torch.flex_attention(q, q, q, **mods)
    assert f"{__file__}:{line_of(mod)}" in str(caught.value)


def test_other_specs_keep_their_errors():
    with pytest.raises(attn.SpecError, match="E0340"):
        f = attn.compile("attention x { dims B, Hq, Sq, D; tensor t: f32[Sq]; score score + t[q_idx - kv_idx]; }")
        q = torch.zeros(1, 2, 16, 8)
        f(q, q, q, t=torch.zeros(16))
    q = torch.zeros(1, 2, 16, 8, dtype=torch.float16)
    with pytest.warns(attn.SpecWarning, match=r"mask q_idx < -5;"):  # its text, not its JSON form
        attn.compile("attention x { dims B, Hq, Sq, D; mask q_idx < -5; }")(q, q, q)


def test_facts_of_one_batch_are_not_relied_on():
    doc = torch.tensor([0, 0, 1, 1])
    f = attn.compile(mask_mod=lambda b, h, i, j: doc[i] == doc[j], B=1, Hq=1, Sq=4, D=8)
    assert "monotone" not in f.spec
    q = torch.randn(1, 1, 4, 8)
    other = torch.tensor([1, 0, 1, 0])
    seen = other[:, None] == other
    expected = torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=seen)
    torch.testing.assert_close(f(q, q, q, doc=other), expected, atol=1e-5, rtol=1e-5)
    declared = attn.compile(mask_mod=lambda b, h, i, j: doc[i] == doc[j], B=1, Hq=1, Sq=4, D=8, facts=True)
    assert "monotone" in declared.spec
