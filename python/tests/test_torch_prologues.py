"""Rotary positions, QK-norm and Swin V2's cosines, against PyTorch's own operators."""

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402

DEVICES = [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU"))]
SHAPES = ((2, 4, 4, 40, 16), (1, 6, 2, 33, 32))


def tables(rows, pairs, device="cpu"):
    angles = torch.arange(rows)[:, None] * 10000.0 ** (-torch.arange(pairs) / pairs)
    return angles.cos().float().to(device), angles.sin().float().to(device)


def halves_turned(x, cos, sin):
    """As in Transformers: x * cos + rotate_half(x) * sin, of tables with both halves."""
    cos, sin = (torch.cat([table, table], -1).to(x.dtype) for table in (cos, sin))
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def neighbours_turned(x, cos, sin):
    """As the paper has it: pairs of neighbours as complex numbers."""
    pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.complex(cos.double(), sin.double())).flatten(-2)


def attend(q, k, v, causal=True, scale=None, bias=None):
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias
    rows = torch.arange(q.shape[2], device=q.device)
    hidden = rows[:, None] < rows if causal else torch.zeros_like(scores[0, 0], dtype=torch.bool)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def rows_of(shape, device="cpu"):
    batch, heads, kv_heads, rows, depth = shape
    random = torch.Generator(device).manual_seed(3)

    def tensor(*sizes):
        return torch.randn(*sizes, generator=random, device=device)

    q, k, v = (tensor(batch, each, rows, depth).bfloat16() for each in (heads, kv_heads, kv_heads))
    return q, k, v, tensor(batch, heads, rows, depth).bfloat16()


def compare(f, expected, learned, own, d_o, **given):
    """`own` are q, k, v and learned tensors by name, of which `expected` makes o in double."""
    mine = {name: x.clone().requires_grad_() for name, x in own.items()}
    exact = {name: x.double().requires_grad_() for name, x in own.items()}
    named = {name: mine[name] for name in learned}
    result = f(mine["q"], mine["k"], mine["v"], **named, **given)
    o = result if isinstance(result, torch.Tensor) else result[0]
    o.backward(d_o)
    other = expected(**exact)
    other.backward(d_o.double())
    torch.testing.assert_close(o.double(), other, atol=0.03, rtol=0.03)
    for name, x in exact.items():
        largest = x.grad.abs().max().item()
        torch.testing.assert_close(mine[name].grad.double(), x.grad, atol=0.03 * largest, rtol=0.03, msg=name)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_rotary_positions(shape, device):
    q, k, v, d_o = rows_of(shape, device)
    cos, sin = tables(shape[3], shape[4] // 2, device)
    f = attn.compile("rope_causal", Hq=shape[1], Hkv=shape[2])
    compare(f, lambda q, k, v: attend(halves_turned(q, cos, sin), halves_turned(k, cos, sin), v), [],
            dict(q=q, k=k, v=v), d_o, cosines=cos, sines=sin)


def test_a_part_of_the_row_is_turned_in_neighbours():
    spec = """import "rotary.attn";
      attention f { dims B, Hq, Sq, Skv = Sq, D = 32; tensor cosines: f32[Sq, 8]; tensor sines: f32[Sq, 8];
        prologue q: rotary_interleaved(cosines, sines, 16, q_idx);
        prologue k: rotary_interleaved(cosines, sines, 16, kv_idx);
        mask q_idx >= kv_idx; outputs o; }"""
    q, k, v, d_o = rows_of((2, 2, 2, 24, 32))
    cos, sin = tables(24, 8)

    def turned(x):
        return torch.cat([neighbours_turned(x[..., :16], cos, sin), x[..., 16:]], -1)

    compare(attn.compile(spec), lambda q, k, v: attend(turned(q), turned(k), v), [], dict(q=q, k=k, v=v), d_o,
            cosines=cos, sines=sin)


def test_positions_of_two_dimensions():
    spec = """import "rotary.attn";
      attention f(width = 6) { dims B, Hq, Sq, Skv = Sq, D = 32; tensor cosines: f32[8, D // 4];
        tensor sines: f32[8, D // 4];
        prologue q: rotary_2d(cosines, sines, D, min(q_idx // width, 7), q_idx % width);
        prologue k: rotary_2d(cosines, sines, D, min(kv_idx // width, 7), kv_idx % width); outputs o; }"""
    q, k, v, d_o = rows_of((1, 2, 2, 24, 32))
    cos, sin = tables(8, 8)
    rows = torch.arange(24)

    def turned(x):
        parts = [halves_turned(part, cos[at], sin[at]) for part, at in zip(x.chunk(2, -1), (rows // 6, rows % 6))]
        return torch.cat(parts, -1)

    compare(attn.compile(spec), lambda q, k, v: attend(turned(q), turned(k), v, causal=False), [],
            dict(q=q, k=k, v=v), d_o, cosines=cos, sines=sin)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_qk_norm(shape, device):
    q, k, v, d_o = rows_of(shape, device)
    cos, sin = tables(shape[3], shape[4] // 2, device)
    weights = {name: 1 + 0.1 * torch.arange(shape[4], device=device).float().cos() for name in ("q_weight", "k_weight")}

    def normed(x, weight):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, 1e-6)

    def expected(q, k, v, q_weight, k_weight):
        q, k = normed(q, q_weight), normed(k, k_weight)
        return attend(halves_turned(q, cos, sin), halves_turned(k, cos, sin), v)

    f = attn.compile("qk_norm", Hq=shape[1], Hkv=shape[2], D=shape[4])
    compare(f, expected, weights, dict(q=q, k=k, v=v, **weights), d_o, cosines=cos, sines=sin)


@pytest.mark.parametrize("device", DEVICES)
def test_swin_v2(device):
    heads, rows = 4, 36
    q, k, v, d_o = rows_of((3, heads, heads, rows, 32), device)
    own = dict(q=q, k=k, v=v, logit_scale=torch.tensor([2.0, 1.0, 0.5, -1.0], device=device),
               bias=torch.randn(heads, rows, rows, generator=torch.Generator(device).manual_seed(8), device=device))

    def expected(q, k, v, logit_scale, bias):
        """As in torchvision's shifted windows, version 2."""
        q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
        scale = logit_scale.clamp(max=torch.tensor(100.0).log().item()).exp()[:, None, None]
        return attend(q, k, v, causal=False, scale=scale, bias=bias)

    f = attn.compile("swin_v2", Hq=heads, Hkv=heads, Sq=rows)
    compare(f, expected, ["logit_scale", "bias"], own, d_o)
