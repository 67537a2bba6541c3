"""The Forgetting Transformer's attention, against PyTorch's own operators."""

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402

SHAPES = ((2, 4, 4, 40, 16), (1, 6, 2, 33, 8), (2, 4, 1, 70, 16))
DEVICES = [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU"))]


def forgetting(q, k, v, forget):
    """As in equation 6 of the paper: the score of a key has the logarithms of the gates between it and the query."""
    groups, rows = q.shape[1] // k.shape[1], torch.arange(q.shape[2], device=q.device)
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    logarithms = torch.nn.functional.logsigmoid(forget)
    between = (rows[:, None, None] >= rows) & (rows > rows[None, :, None])  # [query, key, gate]
    decay = torch.einsum("bhg,ijg->bhij", logarithms, between.to(logarithms.dtype))
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + decay
    return scores.masked_fill(rows[:, None] < rows, float("-inf")).softmax(-1) @ v


def inputs(batch, heads, kv_heads, rows, depth, device):
    random = torch.Generator(device).manual_seed(7)

    def tensor(*sizes):
        return torch.randn(*sizes, generator=random, device=device)

    q, k, v = (tensor(batch, each, rows, depth).bfloat16() for each in (heads, kv_heads, kv_heads))
    return q, k, v, tensor(batch, heads, rows) + 1, tensor(batch, heads, rows, depth).bfloat16()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_fox_is_the_forgetting_transformer(shape, device):
    *tensors, d_o = inputs(*shape, device)
    own = [x.clone().requires_grad_() for x in tensors]
    f = attn.compile("fox", Hq=shape[1], Hkv=shape[2])
    o, _ = f(*own[:3], forget=own[3])
    o.backward(d_o)
    exact = [x.double().requires_grad_() for x in tensors]
    expected = forgetting(*exact)
    expected.backward(d_o.double())
    torch.testing.assert_close(o.double(), expected, atol=0.02, rtol=0.02)
    for mine, other in zip(own, exact):
        largest = other.grad.abs().max().item()
        torch.testing.assert_close(mine.grad.double(), other.grad, atol=0.02 * largest, rtol=0.02)


def test_gates_behind_the_last_key_may_be_anything():
    spec = """attention f { dims B, Hq, Sq, Skv = Sq, D; lengths q, kv; learn forget: f32[B, Hq, Skv];
      let c = cumsum(-softplus(-forget[b, h, kv_idx])); score score + c[q_idx] - c[kv_idx];
      mask q_idx >= kv_idx; outputs o; }"""
    q, k, v, forget, d_o = inputs(1, 2, 2, 24, 8, "cpu")
    short = [x[:, :, :10].clone().requires_grad_() for x in (q, k, v, forget)]
    forgetting(*(x.double() for x in short)).backward(d_o[:, :, :10].double())
    forget[:, :, 10:] = float("nan")
    own = [x.requires_grad_() for x in (q, k, v, forget)]
    lengths = torch.tensor([10], dtype=torch.int32)
    attn.compile(spec)(*own[:3], forget=own[3], lengths_q=lengths, lengths_kv=lengths).backward(d_o)
    torch.testing.assert_close(own[3].grad[:, :, :10], short[3].grad, atol=0.01, rtol=0.02)
    assert (own[3].grad[:, :, 10:] == 0).all()
