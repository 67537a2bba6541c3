"""Calls without a batch, a row or a key: nothing is compiled, and every element is known."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attentions import in_8_bits, learned, slopes, tensors, traced  # noqa: E402

LEARNED = learned("o, lse, max, sum_exp")
SHAPES = {"no batch": (0, 5, 6), "no row": (2, 0, 6), "no key": (2, 5, 0), "nothing": (0, 0, 0)}



@pytest.mark.parametrize("traces, dtype", [
    *((False, dtype) for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)),
    (True, torch.float32)])
@pytest.mark.parametrize("case", SHAPES)
def test_outputs_and_gradients(case, traces, dtype, monkeypatch):
    batch, rows, keys = SHAPES[case]
    f = attn.compile(LEARNED)
    run = traced(f) if traces else f
    monkeypatch.setattr(attn._attnc, "_start", lambda *_: pytest.fail("attnc was started"))
    q, k, v = tensors(batch, rows, keys, dtype)
    learns = slopes()
    o, lse, most, total = run(q, k, v, slopes=learns)
    assert o.shape == q.shape and o.dtype == dtype and (o == 0).all()
    assert lse.shape == most.shape == total.shape == (batch, 4, rows)
    assert (lse == -math.inf).all() and (most == -math.inf).all() and (total == 0).all()
    o.sum().backward()
    for x in (q, k, v, learns):
        assert x.grad.shape == x.shape and x.grad.dtype == x.dtype and (x.grad == 0).all()


@pytest.mark.parametrize("case", SHAPES)
def test_flex_attention(case):
    batch, rows, keys = SHAPES[case]
    q, k, v = tensors(batch, rows, keys)
    bias = torch.zeros(4, requires_grad=True)
    o, lse = attn.torch.flex_attention(q, k, v, lambda s, b, h, i, j: s * bias[h], mask_mod=lambda b, h, i, j: i >= j,
                                       enable_gqa=True, return_lse=True)
    assert o.shape == q.shape and (o == 0).all() and (lse == -math.inf).all()
    o.sum().backward()
    assert q.grad.shape == q.shape and (bias.grad == 0).all()


@pytest.mark.parametrize("case", SHAPES)
def test_arrays(case):
    batch, rows, keys = SHAPES[case]
    f = attn.compile(LEARNED)
    inputs = [x.detach().numpy() for x in tensors(batch, rows, keys)]
    o, lse, most, total = f(*inputs, slopes=np.ones(4))
    assert o.shape == inputs[0].shape and not o.any() and (lse == -math.inf).all() and not total.any()
    gradients = f.gradients(*inputs, slopes=np.ones(4), do=o)
    assert {name: x.shape for name, x in gradients.items()} == {
        **{name: x.shape for name, x in zip("qkv", inputs)}, "slopes": (4,)}
    assert not any(x.any() for x in gradients.values())


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_strides_are_those_of_the_operator(layout):
    q, k, v = tensors(2, 5, 0)
    if layout == "bshd":
        q = q.detach().transpose(1, 2).contiguous().transpose(1, 2)
    o = attn.compile(LEARNED)(q, k, v, slopes=torch.ones(4))[0]
    assert o.stride() == q.stride()


def test_8_bit_floats():
    f, scales = in_8_bits()
    q, k, v = tensors(1, 3, 0, torch.float32)
    o, lse, amax_s, amax_o = f(q, k, v, **scales)
    assert (o == 0).all() and (lse == -math.inf).all() and amax_s == amax_o == 0
    o.sum().backward()
    assert (q.grad == 0).all() and k.grad.shape == k.shape
    o, *_ = f(*(x.detach().to(torch.float8_e4m3fn) for x in (q, k, v)), **scales)
    assert o.dtype == torch.float8_e4m3fn and (o.float() == 0).all()


def test_a_sink_without_a_key():
    f = attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, D; learn s: f32[Hq]; sink s[h]; outputs o, lse; }")
    q, k, v = tensors(2, 5, 0)
    for inputs in ((q, k, v), [x.detach().numpy() for x in (q, k, v)]):
        with pytest.raises(attn.UnsupportedError, match="without a key, lse and its like are those of the sink"):
            f(*inputs, s=torch.ones(4) if inputs[0] is q else np.ones(4))
    assert f(*tensors(2, 0, 5), s=torch.ones(4))[1].shape == (2, 4, 0)
    alone = attn.compile(f.spec.replace("outputs o, lse;", "outputs o;"))
    s = torch.ones(4, requires_grad=True)
    o = alone(q, k, v, s=s)
    o.sum().backward()
    assert (o == 0).all() and (s.grad == 0).all()


def test_sigmoid():
    f = attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, D; normalize sigmoid; }")
    q, k, v = tensors(2, 5, 0)
    o = f(q, k, v)
    o.sum().backward()
    assert (o == 0).all() and (q.grad == 0).all()


def test_packed_sequences_without_rows_or_keys():
    f = attn.compile("attention x { dims B = 2, Hq = 4, Hkv = 2, Sq = 4, Skv = 4, D = 16; layout thd; outputs o, lse; }")
    none, some = torch.zeros(3, dtype=torch.int32), torch.tensor([0, 1, 3], dtype=torch.int32)
    for rows, keys, of_q, of_k in ((0, 3, none, some), (3, 0, some, none), (0, 0, none, none)):
        q, k, v = (torch.ones(count, heads, 16, requires_grad=True) for count, heads in ((rows, 4), (keys, 2), (keys, 2)))
        o, lse = f(q, k, v, cu_seqlens_q=of_q, cu_seqlens_kv=of_k)
        assert o.shape == q.shape and (o == 0).all() and (lse == -math.inf).all()
        o.sum().backward()
        assert all(x.grad.shape == x.shape and (x.grad == 0).all() for x in (q, k, v))
