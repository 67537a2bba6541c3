"""Several attentions in one spec, against PyTorch's own operators: on the CPU by the reference, on a GPU by
kernels."""

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attentions import traced  # noqa: E402
from by_torch import CLOSE, DEVICE, ON_GPU, expect_same, normal, positions, softmax_attention  # noqa: E402


def numbers(*shape):
    """A learned tensor of f32, kept in more digits on the CPU."""
    return normal(*shape, dtype=torch.float32 if ON_GPU else torch.float64)


def differential_inputs(rows):
    q, k, v = normal(2, 4, rows, 64), normal(2, 2, rows, 64), normal(2, 2, rows, 128)
    return q, k, v, normal(2, 4, rows, 64), normal(2, 2, rows, 64), numbers(4)


def differential_by_torch(q, k, v, q2, k2, factor):
    at, key = positions(q.shape[2], k.shape[2])
    first, second = softmax_attention(q, k, v, at >= key), softmax_attention(q2, k2, v, at >= key)
    return first - factor.double()[None, :, None, None] * second


WAYS = {
    "called": lambda f: f,
    "bshd": lambda f: lambda q, k, v, **more: f(
        *(x.transpose(1, 2) for x in (q, k, v)), **more, layout="bshd").transpose(1, 2),
    "traced": lambda f: traced(lambda q, k, v, **more: f(q, k, v, **more)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [40, 130, 257])
def test_differential_attention(way, rows):
    f = attn.compile("differential", Hq=4, Hkv=2)
    q, k, v, q2, k2, factor = inputs = differential_inputs(rows)
    found = WAYS[way](f)(q, k, v, q2=q2, k2=k2, lam=factor)
    expect_same(found, differential_by_torch(*inputs), inputs)


def nsa_by_torch(q, k, v, k_compressed, v_compressed, gates, chosen, window):
    at, key = positions(q.shape[2], k.shape[2])
    _, short = positions(q.shape[2], k_compressed.shape[2])
    blocks = (chosen[..., None, :] == (key[0] // 64)[:, None]).any(-1)  # [B, Hkv, Sq, Skv]
    blocks = blocks.repeat_interleave(q.shape[1] // k.shape[1], 1)
    made = (softmax_attention(q, k_compressed, v_compressed, short * 16 + 31 <= at),
            softmax_attention(q, k, v, (at >= key) & blocks),
            softmax_attention(q, k, v, (at >= key) & (at - key < window)))
    return sum(gates.double().sigmoid()[..., i, None] * one for i, one in enumerate(made))


@pytest.mark.parametrize("rows", [70, 256, 333])
def test_native_sparse_attention(rows):
    f = attn.compile("nsa", Hq=4, Hkv=2, D=64, most=3, window_size=50)
    q, k, v = normal(2, 4, rows, 64), normal(2, 2, rows, 64), normal(2, 2, rows, 64)
    short = [normal(2, 2, rows // 16, 64) for _ in range(2)]
    gates = numbers(2, 4, rows, 3)
    generator = torch.Generator().manual_seed(rows)
    chosen = torch.randint(-1, rows // 64 + 1, (2, 2, rows, 3), generator=generator, dtype=torch.int32).to(DEVICE)
    found = f(q, k, v, k_compressed=short[0], v_compressed=short[1], chosen=chosen, gates=gates)
    inputs = (q, k, v, *short, gates)
    expect_same(found, nsa_by_torch(*inputs, chosen, 50), inputs)


def test_nothing_is_kept_without_gradients():
    f = attn.compile("differential", Hq=4, Hkv=2)
    inputs = differential_inputs(65)
    q, k, v, q2, k2, factor = (x.detach() for x in inputs)
    found = f(q, k, v, q2=q2, k2=k2, lam=factor)
    assert not found.requires_grad
    torch.testing.assert_close(found.double(), differential_by_torch(*inputs).detach(), **CLOSE)


def test_gradients_of_some():
    """Tensors of one branch alone, and of what combines alone."""
    f = attn.compile("differential", Hq=4, Hkv=2)
    for names in (("q2",), ("factor",), ("k", "factor")):
        q, k, v, q2, k2, factor = inputs = differential_inputs(50)
        by_name = dict(zip(("q", "k", "v", "q2", "k2", "factor"), inputs))
        for name, tensor in by_name.items():
            tensor.requires_grad_(name in names)
        found = f(q, k, v, q2=q2, k2=k2, lam=factor)
        expect_same(found, differential_by_torch(*inputs), [by_name[name] for name in names])


NAMED = """attention named {
  dims B, Hq = 4, Hkv = 2, Sq, Skv = Sq, D = 64;
  lengths kv;
  branch own;
  score score / 2;
  branch amax_far;
  mask q_idx >= kv_idx;
  branch last;
  combine own + amax_far * lengths_kv[b] / 50 - last;
  grad q, k, v;
}
"""


def test_names_as_outputs_begin_and_lengths_where_branches_are_combined():
    q, k, v = inputs = normal(2, 4, 50, 64), normal(2, 2, 50, 64), normal(2, 2, 50, 64)
    lengths = torch.tensor([50, 17], dtype=torch.int32, device=DEVICE)
    found = attn.compile(NAMED)(q, k, v, lengths_kv=lengths)
    at, key = positions(50, 50)
    seen = (key < lengths[:, None, None, None]).expand(2, 4, 50, 50)
    own, far, last = (softmax_attention(q / over, k, v, seen & mask)
                      for over, mask in ((2, at >= 0), (1, at >= key), (1, at >= 0)))
    expect_same(found, own + far * lengths[:, None, None, None] / 50 - last, inputs)
