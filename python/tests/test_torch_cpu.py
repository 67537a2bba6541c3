"""attn.torch on the CPU: the reference computes, so everything but the kernels is the same as on a GPU."""

import math
import sys

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from mods import MODS, B, H, S  # noqa: E402

CAUSAL = """attention causal {
  dims B, Hq, Hkv, Sq, Skv, D;
  mask q_idx >= kv_idx;
}
"""

LEARNED = """attention learned {
  dims B, Hq, Hkv, Sq, Skv, D;
  learn slopes: f32[Hq];
  param cap: f32;
  score cap * tanh(score / cap);
  score score + slopes[h] * (kv_idx - q_idx);
  mask q_idx >= kv_idx;
  outputs o, lse;
}
"""


def inputs(dtype=torch.float64, batch=2, heads=4, key_heads=2, rows=7, columns=7, depth=8, grad=False):
    generator = torch.Generator().manual_seed(1)

    def make(heads, length):
        x = torch.randn(batch, heads, length, depth, generator=generator, dtype=torch.float64).to(dtype)
        return x.requires_grad_(grad)

    return make(heads, rows), make(key_heads, columns), make(key_heads, columns)


def dense(q, k, v, score_mod=None, mask_mod=None):
    """o and lse by plain operations."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    b = torch.arange(q.shape[0])[:, None, None, None]
    h = torch.arange(q.shape[1])[None, :, None, None]
    row = torch.arange(q.shape[2])[None, None, :, None]
    column = torch.arange(k.shape[2])[None, None, None, :]
    if score_mod is not None:
        score = score_mod(score, b, h, row, column)
    if mask_mod is not None:
        score = torch.where(mask_mod(b, h, row, column), score, -math.inf)
    return torch.softmax(score, -1) @ v, torch.logsumexp(score, -1)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def test_values_and_gradients_are_those_of_a_dense_evaluation():
    f = attn.compile(CAUSAL)
    q, k, v = inputs(grad=True)
    o = f(q, k, v)
    expected, _ = dense(q, k, v, mask_mod=causal)
    torch.testing.assert_close(o, expected, atol=1e-12, rtol=1e-12)
    weights = torch.randn_like(o)
    found = torch.autograd.grad((o * weights).sum(), (q, k, v))
    wanted = torch.autograd.grad((expected * weights).sum(), (q, k, v))
    for name, x, y in zip("qkv", found, wanted):
        torch.testing.assert_close(x, y, atol=1e-12, rtol=1e-12, msg=lambda m: f"d{name}: {m}")


def test_learned_tensors_params_and_lse():
    f = attn.compile(LEARNED)
    q, k, v = inputs(grad=True)
    slopes = torch.tensor([0.5, -0.25, 0.125, 0.1], dtype=torch.float64, requires_grad=True)

    def score_mod(score, b, h, q_idx, kv_idx):
        return 3 * torch.tanh(score / 3) + slopes[h] * (kv_idx - q_idx)

    o, lse = f(q, k, v, slopes=slopes, cap=3)
    expected, expected_lse = dense(q, k, v, score_mod, causal)
    torch.testing.assert_close(o, expected, atol=1e-7, rtol=1e-7)
    torch.testing.assert_close(lse, expected_lse, atol=1e-7, rtol=1e-7)
    found = torch.autograd.grad(o.square().sum(), (q, k, v, slopes))
    wanted = torch.autograd.grad(expected.square().sum(), (q, k, v, slopes))
    for x, y in zip(found, wanted):
        torch.testing.assert_close(x, y, atol=1e-6, rtol=1e-6)
    assert not lse.requires_grad


def test_flex_attention_takes_mods_as_they_are():
    bias = torch.randn(4, 7, 9, dtype=torch.float64, requires_grad=True)

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[h, q_idx, kv_idx]

    def mask_mod(b, h, q_idx, kv_idx):
        return q_idx + 2 >= kv_idx

    q, k, v = inputs(rows=7, columns=9, grad=True)
    o, lse = attn.torch.flex_attention(
        q, k, v, score_mod, mask_mod=mask_mod, enable_gqa=True, return_lse=True
    )
    expected, expected_lse = dense(q, k, v, score_mod, mask_mod)
    torch.testing.assert_close(o, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(lse, expected_lse, atol=1e-6, rtol=1e-6)
    found = torch.autograd.grad(o.sum(), (q, bias))
    wanted = torch.autograd.grad(expected.sum(), (q, bias))
    for x, y in zip(found, wanted):
        torch.testing.assert_close(x, y, atol=1e-6, rtol=1e-6)


def test_flex_attention_traces_equal_mods_once(monkeypatch):
    module = sys.modules["attn.trace"]  # `attn.trace` is its function
    traced = []
    whole = module.trace
    monkeypatch.setattr(module, "trace", lambda *a, **k: traced.append(1) or whole(*a, **k))
    q, k, v = inputs(heads=2)

    def run(window, bias):
        def mod(score, b, h, q_idx, kv_idx):
            return torch.where(q_idx - kv_idx < window, score + bias[h], -math.inf)

        return attn.torch.flex_attention(q, k, v, mod)

    zeros, ones = torch.zeros(2), torch.ones(2)
    first = run(30, zeros)
    assert len(traced) == 1
    torch.testing.assert_close(run(30, ones), first)  # softmax ignores a constant of the row
    assert len(traced) == 1  # other elements
    run(31, zeros)
    assert len(traced) == 2  # another constant


def test_flex_attention_uses_the_tensors_of_each_call():
    """Those without dimensions, and documents that are no longer sorted, too."""
    q, k, v = inputs(heads=2, rows=12, columns=12)
    lens = torch.tensor([5, 9])
    for factor, document in ((2.0, torch.arange(12) // 5), (3.0, torch.arange(12) % 5)):
        factor, lens = torch.tensor(factor, requires_grad=True), lens + 1

        def score_mod(score, b, h, q_idx, kv_idx, factor=factor):
            return score * factor

        def mask_mod(b, h, q_idx, kv_idx, lens=lens, document=document):
            return (kv_idx < lens[1]) & (document[q_idx] == document[kv_idx])

        o = attn.torch.flex_attention(q, k, v, score_mod, mask_mod=mask_mod)
        visible = (torch.arange(12) < lens[1]) & (document[:, None] == document)
        scores = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 * factor).masked_fill(~visible, -math.inf)
        expected = torch.softmax(scores, -1).nan_to_num(0) @ v
        torch.testing.assert_close(o, expected, atol=1e-6, rtol=1e-6)
        (found,), (wanted,) = (torch.autograd.grad(x[:, :, :5].sum(), factor) for x in (o, expected))
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", MODS)
def test_flex_attention_finds_what_published_mods_capture(name):
    score_mod, mask_mod = MODS[name]()
    q, k, v = inputs(torch.float32, batch=B, heads=H, key_heads=H, rows=S, columns=S)
    first, again = (attn.torch.flex_attention(q, k, v, score_mod, mask_mod=mask_mod) for _ in range(2))
    assert torch.equal(first, again)


def test_half_precision_is_rounded_as_a_kernel_would():
    f = attn.compile(CAUSAL)
    q, k, v = inputs(torch.bfloat16)
    o = f(q, k, v)
    assert o.dtype == torch.bfloat16
    expected, _ = dense(q.double(), k.double(), v.double(), mask_mod=causal)
    torch.testing.assert_close(o.double(), expected, atol=2e-2, rtol=2e-2)


def test_strides_do_not_matter():
    f = attn.compile(CAUSAL)
    q, k, v = inputs()
    other = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    torch.testing.assert_close(f(*other), f(q, k, v))


def test_autocast_casts_as_for_matmul():
    f = attn.compile(CAUSAL)
    q, k, v = inputs(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert f(q, k, v).dtype == torch.bfloat16


def test_compile_without_graph_break_and_export():
    f = attn.compile(LEARNED)
    slopes = torch.nn.Parameter(torch.tensor([0.5, -0.25, 0.125, 0.1]))

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slopes = slopes

        def forward(self, q, k, v):
            o, lse = f(q * 2, k, v, slopes=self.slopes, cap=3.0)
            return o + 1, lse

    layer = Layer()
    q, k, v = inputs(torch.float32, grad=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    o, lse = compiled(q, k, v)
    expected, expected_lse = layer(q, k, v)
    torch.testing.assert_close(o, expected)
    torch.testing.assert_close(lse, expected_lse)
    found = torch.autograd.grad(o.square().sum(), (q, k, v, slopes))
    wanted = torch.autograd.grad(expected.square().sum(), (q, k, v, slopes))
    for x, y in zip(found, wanted):
        torch.testing.assert_close(x, y)
    with torch.no_grad():
        program = torch.export.export(layer, (q.detach(), k.detach(), v.detach()))
        torch.testing.assert_close(program.module()(q, k, v)[0], expected)
    assert "attn.forward" in str(program.graph)


def test_operators_pass_pytorchs_own_checks():

    f = attn.compile(CAUSAL)
    tensors = list(inputs(torch.float32, grad=True))
    name = f._torch_facts.name
    for training in (True, False):
        torch.library.opcheck(
            torch.ops.attn.forward.default, (name, ["q", "k", "v"], tensors, [], training)
        )


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda q, k, v: (q[0], k, v), "q has shape"),
        (lambda q, k, v: (q, k[:1], v[:1]), "expand k and v"),
        (lambda q, k, v: (q, k, v[:, :, :3]), "must be the same in both"),
        (lambda q, k, v: (q[..., :4], k, v), "D must be the same"),
        (lambda q, k, v: (q[:, :3], k, v), "not a multiple"),
        (lambda q, k, v: (q.float(), k, v), "same dtype"),
        (lambda q, k, v: (q.numpy(), k, v), "not a torch.Tensor"),
    ],
)
def test_wrong_tensors(change, message):
    f = attn.compile(CAUSAL)
    with pytest.raises(attn.BindingError, match=message):
        attn.torch.call(f, *change(*inputs()))


@pytest.mark.parametrize(
    "given, message",
    [
        ({}, "slopes and cap must be given"),
        ({"slopes": torch.zeros(4)}, "cap must be given"),
        ({"slopes": torch.zeros(4), "cap": 1, "colour": 3}, "no `colour`; it takes q, k, v, slopes, cap"),
        ({"slopes": 1.0, "cap": 1}, "slopes is a number"),
        ({"slopes": torch.zeros(4), "cap": 1, "q": torch.zeros(1)}, "q was given twice"),
    ],
)
def test_wrong_names(given, message):
    f = attn.compile(LEARNED)
    with pytest.raises(attn.BindingError, match=message):
        f(*inputs(), **given)
