"""Epilogues and gates, against PyTorch's own operators: on the CPU by the reference, on a GPU by kernels."""

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attentions import traced  # noqa: E402
from by_torch import CLOSE, DEVICE, ON_GPU, expect_same, normal, softmax_attention  # noqa: E402


def causal(rows):
    return torch.ones(rows, rows, dtype=torch.bool, device=DEVICE).tril()


def gated_inputs(rows=40, width=64):
    return normal(2, 4, rows, width), normal(2, 2, rows, width), normal(2, 2, rows, width), normal(2, 4, rows, width)


def gated_by_torch(q, k, v, gate):
    """Qwen3-Next's output gate."""
    return softmax_attention(q, k, v, causal(q.shape[2])) * torch.sigmoid(gate.double())


WAYS = {
    "called": lambda f: f,
    "bshd": lambda f: lambda q, k, v, gate: f(
        *(x.transpose(1, 2) for x in (q, k, v)), gate=gate, layout="bshd")[0].transpose(1, 2),
    "traced": lambda f: traced(lambda q, k, v, gate: f(q, k, v, gate=gate)[0]),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_gate_of_each_element(way):
    f = attn.compile("gated", Hq=4, Hkv=2, D=64)
    q, k, v, gate = inputs = gated_inputs()
    called = WAYS[way](f)
    found = called(q, k, v, gate=gate)[0] if way == "called" else called(q, k, v, gate)
    expect_same(found, gated_by_torch(*inputs), inputs)


def test_alphafold():
    f = attn.compile("alphafold_gated", Hq=4, D=32)
    q, k, v, gate = (normal(3, 4, 33, 32) for _ in range(4))
    pair = normal(4, 33, 33)
    residues = torch.tensor([33, 0, 20], dtype=torch.int32, device=DEVICE)
    found = f(q, k, v, gate=gate, pair=pair, residues=residues)[0]
    visible = torch.arange(33, device=DEVICE) < residues[:, None, None, None]
    o = softmax_attention(q, k, v, visible.expand(3, 4, 33, 33), pair.double())
    expect_same(found, o * torch.sigmoid(gate.double()), (q, k, v, gate, pair))
    assert not found[1].any(), "rows that see nothing are 0 times their gate"


LEARNED = """attention learned {
  dims B, Hq = 4, Hkv = 2, Sq, D = 64;
  learn scale_of: f32[Hq, D];
  learn shift: f32[D];
  tensor residual: bf16[B, Hq, Sq, D];
  mask q_idx >= kv_idx;
  epilogue o * (1 + scale_of[h, d_idx]);
  epilogue silu(o) + shift[d_idx] + residual[b, h, q_idx, d_idx];
}
"""


def test_sums_over_rows():
    q, k, v, residual = gated_inputs()
    residual = residual.detach()
    scale_of, shift = normal(4, 64), normal(64)
    if ON_GPU:
        scale_of, shift = (x.detach().float().requires_grad_() for x in (scale_of, shift))
    found = attn.compile(LEARNED)(q, k, v, scale_of=scale_of, shift=shift, residual=residual)
    o = softmax_attention(q, k, v, causal(40)) * (1 + scale_of.double()[:, None])
    expected = torch.nn.functional.silu(o) + shift.double() + residual.double()
    expect_same(found, expected, (q, k, v, scale_of, shift))


def test_what_was_before_the_epilogue_has_no_gradient():
    text = LEARNED.replace("epilogue silu", "outputs o, o_inner;\n  epilogue silu")
    q, k, v, residual = gated_inputs()
    scale_of, shift = (x.float() if ON_GPU else x for x in (normal(4, 64, grad=False), normal(64, grad=False)))
    o, inner = attn.compile(text)(q, k, v, scale_of=scale_of, shift=shift, residual=residual.detach())
    assert inner.shape == o.shape and inner.dtype == o.dtype
    torch.testing.assert_close(inner.double(), softmax_attention(q, k, v, causal(40)), **CLOSE)
    with pytest.raises(attn.UnsupportedError, match="o_inner has no gradient"):
        inner.sum().backward()


def test_without_keys_it_is_refused():
    f = attn.compile("gated", Hq=4, Hkv=2, D=64)
    q, k, v, gate = gated_inputs()
    with pytest.raises(attn.UnsupportedError, match="what the epilogue makes of 0"):
        f(q, k[:, :, :0], v[:, :, :0], gate=gate)
    assert f(q[:, :, :0], k, v, gate=gate[:, :, :0])[0].shape == (2, 4, 0, 64)


def test_a_module_owns_what_the_epilogue_learns():
    module = attn.torch.Attention(LEARNED, device=DEVICE)
    q, k, v, residual = gated_inputs()
    scale_of, shift = module.scale_of, module.shift
    with torch.no_grad():
        scale_of += 0.25
    found = module(q, k, v, residual=residual.detach())
    o = softmax_attention(q, k, v, causal(40)) * (1 + scale_of.double()[:, None])
    expected = torch.nn.functional.silu(o) + shift.double() + residual.detach().double()
    d_o = normal(*found.shape, grad=False)
    found.backward(d_o)
    theirs = torch.autograd.grad(expected, (scale_of, shift), d_o.double())
    for one, other in zip((scale_of.grad, shift.grad), theirs):
        torch.testing.assert_close(one, other, atol=CLOSE["atol"] * 30 + 1e-4, rtol=CLOSE["rtol"] + 1e-5)
