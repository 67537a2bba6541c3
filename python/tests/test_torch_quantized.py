"""attn.torch's 8-bit attention on the CPU, beside a dense float64 evaluation of what is not rounded."""
import math
import os
import pathlib
import subprocess
import sys

import numpy
import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attn.torch import quantize  # noqa: E402

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
B, HQ, HKV, S, D = 1, 4, 2, 48, 32
AMAX = ("amax_dp", "amax_dq", "amax_dk", "amax_dv")
SAME_TYPES = """attention same_types {
  dims B = 1, Hq = 4, Hkv = 2, Sq = 48, D = 32; dtype e4m3;
  quantize per_tensor, scale_s = 256, descale_s = 1 / 256, scale_o = 64, descale_o = 1 / 64, scale_dp = 64,
           descale_dp = 1 / 64, scale_dq = 64, scale_dk = 64, scale_dv = 64;
  mask q_idx >= kv_idx; outputs o, lse; grad q, k, v;
}"""


def tensors(dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    shapes = (HQ, HKV, HKV, HQ)
    return [torch.randn(B, heads, S, D, generator=generator).to(dtype) for heads in shapes]


def descales(q, k, v, do=None, of_do=E5M2):
    found = {f"descale_{name}": (x.abs().max().float() / 448).reshape(1) for name, x in zip("qkv", (q, k, v))}
    if do is not None:
        found["descale_do"] = (do.abs().max().float() / torch.finfo(of_do).max).reshape(1)
    return found


def dense(q, k, v):
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(HQ // HKV, 1) for x in (k, v))
    score = q @ k.transpose(-1, -2) / math.sqrt(D)
    hidden = torch.ones(S, S, dtype=torch.bool).triu(1)
    return score.masked_fill(hidden, -math.inf).softmax(-1) @ v


def expected(q, k, v, do):
    leaves = [x.double().detach().requires_grad_() for x in (q, k, v)]
    o = dense(*leaves)
    return o.detach(), torch.autograd.grad(o, leaves, do.double())


def difference(x, y):
    return ((x.double() - y).norm() / y.norm()).item()


@pytest.fixture(scope="module")
def training():
    return attn.compile("fp8_training", Hq=4, Hkv=2)


def test_quantize_saturates_and_divides():
    x = torch.tensor([1.0, -3.0, 1e6, -1e6, 0.0])
    assert quantize(x, torch.tensor([2.0]), E4M3).float().tolist() == [0.5, -1.5, 448, -448, 0]
    assert quantize(x, torch.tensor([1.0]), E5M2).float().tolist() == [1, -3, 57344, -57344, 0]
    assert quantize(torch.tensor([math.nan]), torch.tensor([1.0]), E4M3).float().isnan().all()


def test_8_bits_in_and_out():
    f = attn.compile("fp8_causal")
    q, k, v, _ = tensors()
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    scales = descales(q, k, v)
    eight = [quantize(x, scales[f"descale_{name}"], E4M3) for name, x in zip("qkv", (q, k, v))]
    o, lse, amax_s, amax_o = f(*eight, **scales)
    assert (o.dtype, lse.dtype, o.shape, amax_s.shape, amax_o.dtype) == (
        E4M3, torch.float32, q.shape, (1,), torch.float32)
    assert difference(o.float() / 64, dense(q, k[:, ::2], v[:, ::2])) < 0.08
    assert amax_s.item() == 1
    # The scales that were not given are the spec's; others count.
    o, *_ = f(*eight, **scales, scale_o=torch.tensor([32.0]))
    assert difference(o.float() / 32, dense(q, k[:, ::2], v[:, ::2])) < 0.08
    o, *_ = f(*eight, **scales, scale_o=torch.tensor([1e6]))
    assert o.float().abs().max() == 448
    numbers = f(*(x.float().numpy() for x in eight), **{name: x.numpy() for name, x in scales.items()})
    numpy.testing.assert_array_equal(numbers[0], f(*eight, **scales)[0].float().numpy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_wider_tensors(training, dtype):
    q, k, v, do = tensors(dtype)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    amax = {name: torch.zeros(1) for name in AMAX}
    o, lse, amax_s, amax_o = training(*leaves, **descales(q.detach(), k.detach(), v.detach(), do), **amax)
    assert (o.dtype, amax_o.requires_grad) == (dtype, False)
    with pytest.raises(attn.UnsupportedError, match="lse has no gradient here"):
        lse.sum().backward(retain_graph=True)
    of_o, of_inputs = expected(q, k, v, do)
    assert difference(o, of_o) < 0.08
    assert abs(amax_o.item() / of_o.abs().max().item() - 1) < 0.1
    gradients = torch.autograd.grad(o, leaves, do)
    for gradient, want, name in zip(gradients, of_inputs, ("dq", "dk", "dv")):
        assert gradient.dtype == dtype
        assert difference(gradient, want) < 0.15
        assert abs(amax[f"amax_{name}"].item() / want.abs().max().item() - 1) < 0.2
    assert amax["amax_dp"] > 0


def test_scales_have_no_gradients(training):
    q, k, v, do = tensors()
    scales = {name: x.requires_grad_() for name, x in descales(q, k, v, do).items()}
    o, *_ = training(q.requires_grad_(), k, v, **scales)
    o.backward(do)
    assert q.grad is not None and k.grad is None
    assert all(scale.grad is None for scale in scales.values())


def test_gradients_of_8_bits_where_the_types_are_the_same():
    f = attn.compile(SAME_TYPES)
    q, k, v, do = tensors()
    scales = descales(q, k, v, do, E4M3)
    eight = [quantize(x, scales[f"descale_{name}"], E4M3).requires_grad_() for name, x in zip("qkv", (q, k, v))]
    o, lse = f(*eight, **scales)
    o.backward(quantize(do, scales["descale_do"], E4M3))
    for x, want in zip(eight, expected(q, k, v, do)[1]):
        assert x.grad.dtype == E4M3
        assert difference(x.grad.float() / 64, want) < 0.12


def test_compiled(training):
    """Compiles with fake kernels, without a graph break; the backward writes amax."""
    q, k, v, do = tensors()

    def step(q, k, v, scales, amax):
        return training(q, k, v, **scales, **amax)[0] * 2

    def run(function):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        amax = {name: torch.zeros(1) for name in AMAX}
        o = function(*leaves, descales(q, k, v, do), amax)
        o.backward(do)
        return [o, *(x.grad for x in leaves), *amax.values()]

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for x, y in zip(run(compiled), run(step)):
        torch.testing.assert_close(x, y)

    scales = descales(q, k, v)
    eight = [quantize(x, scales[f"descale_{name}"], E4M3) for name, x in zip("qkv", (q, k, v))]
    compiled = torch.compile(lambda *x: training(*x, **scales), fullgraph=True, backend="aot_eager")
    for x, y in zip(compiled(*eight), training(*eight, **scales)):
        assert x.dtype == y.dtype
        torch.testing.assert_close(x.float(), y.float())


def test_fake_tensors_have_the_types_of_real_ones(training):
    from torch._subclasses.fake_tensor import FakeTensorMode

    q, k, v, _ = tensors()
    eight = [quantize(x, torch.ones(1), E4M3) for x in (q, k, v)]
    real = training(*eight)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = training(*(mode.from_tensor(x) for x in eight))
    assert [(x.dtype, x.shape, x.stride()) for x in fake] == [(x.dtype, x.shape, x.stride()) for x in real]


def test_current_scaling():
    f = attn.compile("fp8_current", Hq=4, Hkv=2)
    q, k, v, _ = tensors(torch.bfloat16)
    o, *_ = f(q, k, v, **descales(q, k, v))
    assert o.dtype == torch.bfloat16 and difference(o, dense(q, k, v)) < 0.08


def test_packed_sequences():
    f = attn.compile("""attention packed { dims B = 2, Hq = 4, Hkv = 2, Sq = 20, D = 32; dtype e4m3;
        quantize per_tensor, scale_s = 256, descale_s = 1 / 256, scale_o = 64; layout thd; outputs o, amax_o; }""")
    q, k, v = (x[0].transpose(0, 1)[:30].to(E4M3) for x in tensors()[:3])
    rows = torch.tensor([0, 10, 30], dtype=torch.int32)
    o, amax_o = f(q, k, v, cu_seqlens_q=rows, cu_seqlens_kv=rows)
    assert (o.dtype, o.shape, amax_o.shape) == (E4M3, (30, 4, 32), (1,))


@pytest.mark.parametrize("eight", [False, True])
def test_lengths_that_change(training, eight):
    q, k, v, _ = tensors()
    scales = descales(q, k, v)
    given = [quantize(x, scales[f"descale_{name}"], E4M3) for name, x in zip("qkv", (q, k, v))] if eight else (q, k, v)
    found = training.bucketed(64)(*given, **scales)
    for x, y in zip(found, training(*given, **scales)):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        torch.testing.assert_close(x.float(), y.float())


REFUSED = {
    "no scales": ("causal", lambda q, k, v: ([x.to(E4M3) for x in (q, k, v)], {}), attn.BindingError,
                  "has no scales for 8 bits"),
    "another type": ("fp8_training", lambda q, k, v: ([x.to(E5M2) for x in (q, k, v)], {}), attn.BindingError,
                     "q, k and v are torch.float8_e5m2, but `fp8_training` has e4m3"),
    "double": ("fp8_training", lambda q, k, v: ([x.double() for x in (q, k, v)], {}), attn.BindingError,
               "must all be of float8, bfloat16, float16 or float32"),
    "shape of a scale": ("fp8_training", lambda q, k, v: ([q, k, v], {"descale_q": torch.ones(2)}),
                         attn.BindingError, "it must be torch.float32 of shape [1]"),
    "a number": ("fp8_training", lambda q, k, v: ([q, k, v], {"descale_q": 0.5}), attn.BindingError,
                 "descale_q is a number"),
    "an amax that is not written": ("fp8_training", lambda q, k, v: (
        [x.to(E4M3) for x in (q, k, v)], {"amax_dq": torch.zeros(1)}), attn.BindingError, "is written only for"),
    "gradients in e5m2": ("fp8_training", lambda q, k, v: (
        [q.to(E4M3).requires_grad_(), k.to(E4M3), v.to(E4M3)], {}), attn.UnsupportedError,
        "autograd converts gradients to the types of their tensors"),
    "no grad clause": ("fp8_current", lambda q, k, v: ([q.requires_grad_(), k, v], {}), attn.UnsupportedError,
                       "gradients only with a `grad` clause"),
    "an unknown scale": ("fp8_current", lambda q, k, v: ([q, k, v], {"scale_o": torch.ones(1)}),
                         attn.BindingError, "has no input `scale_o`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    name, make, error, words = REFUSED[case]
    args, kwargs = make(*tensors()[:3])
    with pytest.raises(error, match=words.replace("[", r"\[")):
        attn.compile(name)(*args, **kwargs)


def test_a_default_that_depends_on_sizes_must_be_given():
    f = attn.compile("""attention sized { dims B = 1, Hq = 4, Hkv = 2, Sq = 48, D = 32; dtype e4m3;
        quantize per_tensor, scale_o = Skv / 2; outputs o; }""")
    assert f.scales["scale_o"] is None
    assert f.scales["descale_q"] == 1
    with pytest.raises(attn.BindingError, match="scale_o must be given"):
        f(*tensors()[:3])


def test_calls_that_share_amax_are_differentiated(training):
    q, k, v, do = tensors()
    scales, amax = descales(q, k, v, do), {name: torch.zeros(1) for name in AMAX}
    leaves = [x.requires_grad_() for x in (q, k, v)]
    both = [training(*leaves, **scales, **amax)[0] for _ in range(2)]
    amax["amax_dq"].zero_()
    sum(both).backward(do, retain_graph=True)
    once = q.grad.clone()
    q.grad = None
    both[0].backward(do)
    assert difference(2 * q.grad, once.double()) < 1e-6
    assert all(value.item() > 0 for value in amax.values())


def test_second_derivatives_are_refused(training):
    q, k, v, do = tensors()
    o, *_ = training(q.requires_grad_(), k, v, **descales(q.detach(), k, v, do))
    (gradient,) = torch.autograd.grad(o.sum(), q, create_graph=True)
    with pytest.raises(attn.UnsupportedError, match="second derivatives"):
        gradient.square().sum().backward()


def test_scales_of_blocks_are_refused():
    q = torch.zeros(1, 4, 64, 64, dtype=E4M3)
    with pytest.raises(attn.UnsupportedError, match="scales of blocks"):
        attn.compile("mxfp8")(q, q, q)


def test_the_training_of_a_transformer_runs():
    """Two steps by the reference of what tests/gpu/train_narrow.py trains on a GPU."""
    source = pathlib.Path(os.environ.get("ATTN_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
    script = source / "tests" / "gpu" / "train_narrow.py"
    process = subprocess.run([sys.executable, script, "--device", "cpu", "--steps", "2", "--rows", "8"],
                             capture_output=True, text=True, check=False,
                             env={**os.environ, "PYTHONPATH": str(source / "python")})
    assert process.returncode == 0, process.stdout + process.stderr
    assert "ratio" in process.stdout
