"""attn.torch on the CPU: the reference computes, so everything but the kernels is the same as on a GPU."""

import math
import os
import pathlib
import subprocess
import sys
import threading
import types
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attn.torch import calls, facts, ways  # noqa: E402
from attn.torch.launch import check  # noqa: E402
from attn.torch.signature import usable  # noqa: E402
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


def test_gradients_pass_pytorchs_own_check():
    """Against differences of values."""
    f = attn.compile(LEARNED)
    q, k, v = inputs(batch=1, heads=2, key_heads=1, rows=3, columns=4, depth=2, grad=True)
    slopes = torch.tensor([0.5, -0.25], dtype=torch.float64, requires_grad=True)

    def run(q, k, v, slopes):
        return f(q, k, v, slopes=slopes, cap=3.0)[0]

    # Captured tensors are read as f32: a difference must not be lost in that.
    assert torch.autograd.gradcheck(lambda *x: run(*x, slopes), (q, k, v), eps=1e-5, atol=1e-7, rtol=1e-6)
    assert torch.autograd.gradcheck(lambda x: run(q, k, v, x), (slopes,), eps=2.0**-8, atol=1e-5, rtol=1e-3)


def test_a_tensor_without_a_gradient_that_requires_one_is_warned_of():
    f = attn.compile(LEARNED.replace("learn ", "tensor "))
    q, k, v = inputs()
    slopes = torch.ones(4, requires_grad=True)
    with pytest.warns(attn.SpecWarning, match="slopes requires a gradient and gets none") as caught:
        f(q, k, v, slopes=slopes, cap=2.0)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(q, k, v, slopes=slopes.detach(), cap=2.0)
        with torch.no_grad():
            f(q, k, v, slopes=slopes, cap=2.0)


@pytest.mark.parametrize("clauses", [
    "mask slopes[q_idx] > 0;", "score where(slopes[h] > 0, score, -1);",
    "score score * (kv_idx // int(slopes[h]));",
    "let x = slopes[h] * kv_idx; score score + x; mask x < 5;",
    "let x = slopes[h]; score where(x > 0, score, -1);",
    "let x = slopes[h]; let far = x * q_idx < kv_idx; score where(far, score, -1);",
    "fn far(x) = slopes[h] * q_idx < x; score where(far(kv_idx), score, -1);"])
def test_tensors_that_cannot_be_learned_are_not_warned_of(clauses):
    f = attn.compile(f"attention x {{ dims B, Hq, Hkv, Sq, Skv, D; tensor slopes: f32[Hq]; {clauses} }}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(*inputs(rows=4, columns=4), slopes=torch.ones(4, requires_grad=True))


@pytest.mark.parametrize("clauses", [
    "let x = slopes[h]; let y = -x * kv_idx; score score + y;",
    "let x = slopes[h]; score where(x > 0, score, x * kv_idx);",
    "fn far(x) { y = slopes[h]; return x * y } score score + far(kv_idx);"])
def test_tensors_that_lets_and_functions_read_for_scores_are_warned_of(clauses):
    f = attn.compile(f"attention x {{ dims B, Hq, Hkv, Sq, Skv, D; tensor slopes: f32[Hq]; {clauses} }}")
    with pytest.warns(attn.SpecWarning, match="slopes requires a gradient and gets none"):
        f(*inputs(rows=4, columns=4), slopes=torch.ones(4, requires_grad=True))


def test_functions_have_no_declarations_to_advise_on():
    slopes = torch.ones(4)
    f = attn.compile(score_mod=lambda score, b, h, q, kv: score + slopes[h] * kv, B=2, Hq=4, Hkv=2, Sq=7, D=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(*inputs(), slopes=torch.ones(4, requires_grad=True))


def test_the_warning_names_the_line_around_modules_of_torch():
    f = attn.compile(LEARNED.replace("learn ", "tensor "))

    class Layer(torch.nn.Module):
        def forward(self, *tensors):
            return f(*tensors, slopes=torch.ones(4, requires_grad=True), cap=2.0)

    with pytest.warns(attn.SpecWarning, match="slopes requires a gradient") as caught:
        torch.func.functional_call(Layer(), {}, inputs())
    assert caught[0].filename == __file__


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
    module = sys.modules["attn.torch.flex"]
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
    """Tensors without dimensions, and documents that are no longer sorted, too."""
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


EXPANDED = {  # one of q's batches, key head, ..; expand gives a stride of 0 to those that are one
    "q over batches": ((1, 4, 7, 8), (2, 2, 7, 8)),
    "k and v over batches": ((2, 4, 7, 8), (1, 2, 7, 8)),
    "k and v over heads": ((2, 4, 7, 8), (2, 1, 7, 8)),
    "all over batches and heads": ((1, 1, 7, 8), (1, 1, 7, 8)),
    "rows": ((2, 4, 1, 8), (2, 2, 1, 8)),
    "elements": ((2, 4, 7, 1), (2, 2, 7, 1)),
}


@pytest.mark.parametrize("name", EXPANDED)
def test_expanded_tensors_are_what_they_show(name):
    """With gradients, which are sums over what is one."""
    f, (of_q, of_k) = attn.compile(CAUSAL), EXPANDED[name]
    parts = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in (of_q, of_k, of_k)]
    q, k, v = (x.expand(2, heads, 7, 8) for x, heads in zip(parts, (4, 2, 2)))
    expected, _ = dense(q, k, v, mask_mod=causal)
    arrays = [x.detach().numpy() for x in (q, k, v)]
    assert any(0 in x.strides for x in arrays)
    for o in (f(q, k, v), attn.torch.flex_attention(q, k, v, mask_mod=causal, enable_gqa=True)):
        torch.testing.assert_close(o, expected)
        found, wanted = (torch.autograd.grad(each.square().sum(), parts, retain_graph=True) for each in (o, expected))
        for x, y in zip(found, wanted):
            torch.testing.assert_close(x, y)
    torch.testing.assert_close(torch.from_numpy(f(*arrays)), expected.detach())


def test_which_tensors_kernels_read_in_place():
    """Strides decide; other tensors are copied before a call."""
    x = torch.randn(2, 4, 6, 16, dtype=torch.bfloat16)
    whole = torch.randn(2, 6, 12, 16, dtype=torch.bfloat16)
    in_place = [x, x.transpose(1, 2), whole[:, :, 4:8].transpose(1, 2), x[:1].transpose(0, 1), x[:, :1, :1]]
    assert all(usable(each) is each for each in in_place)
    one = x[:1, :1]
    expanded = [one.expand(2, 1, 6, 16), one.expand(1, 4, 6, 16), one[:, :, :1].expand(1, 1, 6, 16),
                x[..., :1].expand(-1, -1, -1, 8)]
    copied = [*expanded, x.transpose(2, 3), x[..., ::2], torch.randn(2, 4, 6, 17).bfloat16()[..., :16]]
    for each in copied:
        found = usable(each)
        assert found.is_contiguous() and torch.equal(found, each) and found.data_ptr() != each.data_ptr()


def test_a_captured_tensor_with_other_strides_is_refused_with_advice():
    info = types.SimpleNamespace(name="bias", dtype="f32", dims=(4, 8), strides=(8, 1), addressed_by="",
                                 bound_strides=False)
    check(info, torch.zeros(4, 8), torch.device("cpu"))
    with pytest.raises(attn.BindingError, match="bias has strides") as caught:
        check(info, torch.zeros(8).expand(4, 8), torch.device("cpu"))
    assert "bias.contiguous()" in str(caught.value)


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
        torch.testing.assert_close(compiled(q, k, v), (expected, expected_lse))
        program = torch.export.export(layer, (q.detach(), k.detach(), v.detach()))
        torch.testing.assert_close(program.module()(q, k, v)[0], expected)
    assert "attn.forward" in str(program.graph)


def test_the_import_does_not_import_the_compiler():
    """Which takes seconds."""
    program = "import sys, attn.torch; print('torch._dynamo' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(attn.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.stdout == "False\n", done.stderr


def test_operators_pass_pytorchs_own_checks():

    f = attn.compile(CAUSAL)
    name = f._torch_facts.name
    for training in (True, False):
        tensors = list(inputs(torch.float32, grad=training))
        torch.library.opcheck(torch.ops.attn.forward.default, (name, ["q", "k", "v"], tensors, [], training))


def test_warm_finds_sizes_in_the_spec_and_the_bindings(monkeypatch):
    plans = sys.modules["attn.torch.plans"]
    made = []
    monkeypatch.setattr(plans, "_pair", lambda attention, form, *rest: made.append((form, *rest)))
    f = attn.compile("attention x { dims B, Hq = 8, Hkv = 2, Sq, Skv = 64, D; mask q_idx >= kv_idx; }", D=32)
    assert f.warm(B=3, Sq=16, device="cuda:0").result() is None
    (form, training, device, builds), = made
    assert form.sizes == (3, 8, 2, 16, 64, 32, 32)
    assert (training, device, builds) == (False, torch.device("cuda:0"), True)
    with pytest.raises(attn.BindingError, match="no size is known for B, Sq"):
        f.warm(device="cuda:0")
    with pytest.raises(attn.BindingError, match="not for the device `cpu`"):
        f.warm(B=3, Sq=16, device="cpu")
    made.clear()
    attn.compile(CAUSAL, D=32, builds=False).bucketed(8, 16).warm(B=1, Hq=2, Hkv=2, device="cuda:0")
    assert [form.sizes[3:5] for form, *_ in made] == [(8, 8), (16, 16)]


def test_warm_in_the_background_gives_what_the_build_does(monkeypatch):
    plans = sys.modules["attn.torch.plans"]
    threads = []
    monkeypatch.setattr(plans, "_pair", lambda *_: threads.append(threading.get_ident()))
    f = attn.compile(CAUSAL, B=1, Hq=2, Hkv=2, Sq=8, Skv=8, D=8)
    assert f.warm(background=True, device="cuda:0").result(60) is None
    assert threads and threads[0] != threading.get_ident()

    def fail(*_):
        raise attn.UnsupportedError("no")

    monkeypatch.setattr(plans, "_pair", fail)
    with pytest.raises(attn.UnsupportedError):
        f.warm(background=True, device="cuda:0").result(60)
    with pytest.raises(attn.UnsupportedError):
        f.warm(device="cuda:0")


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is missing without a GPU")
def test_warm_without_a_gpu_says_so():
    with pytest.raises(attn.BindingError, match="PyTorch finds no GPU here"):
        attn.compile(CAUSAL).warm(B=1)


def test_a_plan_that_is_not_deterministic_does_not_serve_deterministic_training(monkeypatch):
    plans = sys.modules["attn.torch.plans"]

    class Runtime:
        def describe(self):
            return {"sm": 90}

    monkeypatch.setattr(plans._libattn, "runtime", lambda _: Runtime())
    monkeypatch.setattr(plans, "Pair", lambda file, places, device: places)
    sizes = {"B": 1, "Hq": 2, "Hkv": 2, "Sq": 64, "Skv": 64, "D": 64}
    f = attn.compile(CAUSAL, target="h200", engine="native", direction="both", **sizes)
    asked = []
    monkeypatch.setattr(f, "build", lambda *_, edits, **__: asked.extend(edits) or f.bytes)
    form = plans.Form(
        plans.Sizes(1, 2, 2, 64, 64, 64, 64), "bf16", ("bshd",) * 3, "bshd", False
    )
    device = torch.device("cuda:0")
    pair = {"fwd": 0, "bwd": 1}
    wanted = form._replace(deterministic=True)
    assert plans._make_pair(f, form, True, device, True) == pair
    assert plans._make_pair(f, wanted, False, device, True) == pair and not asked
    assert plans._make_pair(f, wanted, True, device, True) == pair and "--deterministic" in asked


def test_plans_of_a_file_are_chosen_by_sizes_dtype_and_strides():
    plans = sys.modules["attn.torch.plans"]
    sizes = {"B": 1, "Hq": 2, "Hkv": 2, "Sq": [64, 128], "Skv": 128, "D": 64}
    f = attn.compile(CAUSAL, target="h200", engine="native", direction="both", **sizes)
    form = plans.Form(plans.Sizes(1, 2, 2, 128, 128, 64, 64), "bf16", ("bhsd",) * 3, "bhsd", False)

    file = plans._libattn.PlanFile(f.bytes)

    def places(layouts, sm=90, **changed):
        return plans.places_in(file, form._replace(layouts=layouts, **changed), sm)

    (own,) = [layout for layout in ("bhsd", "bshd") if places((layout,) * 3)]
    assert places((own,) * 3) == {"fwd": 2, "bwd": 3}
    assert places((own,) * 3, sizes=form.sizes._replace(Sq=64)) == {"fwd": 0, "bwd": 1}
    assert places((own,) * 3, sizes=form.sizes._replace(Sq=32)) == {}
    assert places((own,) * 3, dtype="f16") == places((own,) * 3, sm=100) == {}
    assert places((own, own, "strides(32768, 16384, 128, 1)")) == {}
    assert plans.places_in(file, None, 90) == {"fwd": 0, "bwd": 1} and plans.places_in(file, None, 80) == {}


def test_a_plan_file_compiles_nothing_unasked(monkeypatch, tmp_path):
    plans = sys.modules["attn.torch.plans"]

    class Runtime:
        def describe(self):
            return {"sm": 90}

    monkeypatch.setattr(plans._libattn, "runtime", lambda _: Runtime())
    path = tmp_path / "x.attnplan"
    sizes = {"B": 1, "Hq": 2, "Hkv": 2, "Sq": 64, "Skv": 64, "D": 64}
    form = plans.Form(plans.Sizes(1, 2, 2, 99, 99, 64, 64), "bf16", ("bshd",) * 3, "bshd", False)
    device = torch.device("cuda:0")
    attn.compile(CAUSAL, target="h200", engine="native", **sizes).save(path)
    with pytest.raises(attn.UnsupportedError, match="no plan for a forward with these sizes"):
        plans._make_pair(attn.load(path), form, False, device, False)
    attn.compile(CAUSAL, target="a100", **sizes).save(path)
    with pytest.raises(attn.PlanDeviceError, match=r"is for a100 \(sm_80\), and this GPU is sm_90"):
        plans._make_pair(attn.load(path), form, False, device, False)


def test_half_precision_is_rounded_to_the_tensors_dtype():
    f = attn.compile(CAUSAL)  # of bf16
    q, k, v = inputs(torch.float16, rows=40, columns=40, grad=True)
    o = f(q, k, v)
    exact = tuple(x.detach().double().requires_grad_() for x in (q, k, v))
    expected, _ = dense(*exact, mask_mod=causal)
    assert (o - expected).norm() < 1e-3 * expected.norm()
    found = torch.autograd.grad(o.sum(), (q, k, v))
    wanted = torch.autograd.grad(expected.sum(), exact)
    for x, y in zip(found, wanted):
        assert x.dtype == torch.float16
        assert (x - y).norm() < 2e-3 * y.norm()


def test_subclasses_and_modes_see_the_operator():
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    f = attn.compile(CAUSAL)
    with Watch():
        f(*inputs())
    assert "attn.forward.default" in seen
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(x) for x in inputs()]
    o = f(*fake)
    assert isinstance(o, FakeTensor) and o.shape == fake[0].shape


def test_second_derivatives_are_refused():
    f = attn.compile(CAUSAL)
    q, k, v = inputs(grad=True)
    (dq,) = torch.autograd.grad(f(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(attn.UnsupportedError, match="second derivatives"):
        dq.sum().backward()
    (dq,) = torch.autograd.grad(f(q, k, v).sum(), q, create_graph=True)  # depends on q, though d_o does not
    with pytest.raises(attn.UnsupportedError, match="second derivatives"):
        dq.sum().backward()
    name = f._torch_facts.name
    o = torch.ops.attn.forward(name, ["q", "k", "v"], [q, k, v], [], True)[0]
    (dq,) = torch.autograd.grad(o.square().sum(), q, create_graph=True)
    with pytest.raises(attn.UnsupportedError, match="second derivatives"):
        dq.sum().backward()


class Launch:
    """What a short way has of a plan, on the CPU."""

    params = ()

    def __init__(self, inputs, outputs, run):
        self.inputs, self.outputs, self.run_direct = inputs, outputs, run


def test_what_repeats_a_call_keeps_no_tensor_of_it():
    f, q = attn.compile(CAUSAL), inputs()[0]
    each = calls.formed(calls.sorted_call(f, (q, q.clone(), q.clone()), {}))
    pair = types.SimpleNamespace(forward=Launch(("q", "k", "v"), ("o",), None), backward=None)
    recent, kept = ways.Recent(each, pair, {}), weakref.ref(q)
    del each, q
    assert recent is not None and kept() is None


@pytest.mark.parametrize("applies", [True, False])
def test_a_short_way_has_the_gradients_of_the_long_one(applies):
    f = attn.compile(CAUSAL)
    tensors = inputs(grad=True)
    each = calls.formed(calls.sorted_call(f, tensors, {}))
    names, outputs = ("q", "k", "v"), facts.facts_of(f).all_outputs
    long, asked = ways.Way(each, True), []

    def backward(given, params):
        asked.append(params)
        return long.backward(given[:-1], given[-1], None, params) if applies else None

    pair = types.SimpleNamespace(
        forward=Launch(names, outputs, long.forward),
        backward=Launch((*names, *outputs, "do"), ("dq", "dk", "dv"), backward),
    )
    f._recent = ways.Recent(each, pair, {})
    o = f(*tensors)
    found = torch.autograd.grad(o.sum(), tensors)
    assert asked == [()]
    f._recent = None
    torch.testing.assert_close(found, torch.autograd.grad(f(*tensors).sum(), tensors), atol=0, rtol=0)


@pytest.mark.parametrize("in_the_pair", [True, False])
def test_a_short_way_goes_through_lse(in_the_pair):
    f = attn.compile(CAUSAL)
    tensors = inputs(grad=True)
    each = calls.formed(calls.sorted_call(f, tensors, {}))
    known = facts.facts_of(f)
    known.reaches_lse = True  # what is asked here is how, not whether
    names, outputs = ("q", "k", "v"), known.all_outputs
    long, asked = ways.Way(each, True), []

    def backward(given, params):
        asked.append("pair")
        return long.backward(given[:-1], given[-1], None, params)

    def through(given, params):
        asked.append("through lse")
        return long.backward(given[:-2], given[-2], given[-1], params)

    gradients = ("dq", "dk", "dv")
    reads = Launch((*names, *outputs, "do", "dlse"), gradients, through)
    pair = types.SimpleNamespace(
        forward=Launch(names, outputs, long.forward),
        backward=reads if in_the_pair else Launch((*names, *outputs, "do"), gradients, backward),
    )
    way = ways.ShortWay(each, True, pair)
    saved = (*tensors, *way.forward(tensors, ()))
    d_o, d_lse = (torch.randn_like(way.output(name, saved)) for name in ("o", "lse"))
    if not in_the_pair:
        assert way.backward_at_once(saved, d_o, d_lse, ()) is None  # no plan yet
        known.through_lse[way._key] = reads
    found = way.backward_at_once(saved, d_o, d_lse, ())
    torch.testing.assert_close(found, long.backward(saved, d_o, d_lse, ()), atol=0, rtol=0)
    found = way.backward_at_once(saved, d_o, None, ())
    torch.testing.assert_close(found, long.backward(saved, d_o, None, ()), atol=0, rtol=0)
    assert asked == ["through lse", "through lse" if in_the_pair else "pair"]


def test_an_exported_program_does_not_need_the_folder_of_its_spec(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    path = folder / "own.attn"
    path.write_text(CAUSAL.replace("causal", "own"))
    name = attn.compile(path)._torch_facts.name
    path.unlink()
    folder.rmdir()
    facts._attentions.pop(name)
    q, k, v = inputs()
    torch.testing.assert_close(
        torch.ops.attn.forward(name, ["q", "k", "v"], [q, k, v], [], False)[0], attn.compile(CAUSAL)(q, k, v)
    )


def test_flex_attention_does_not_break_the_graph():
    def run(q, window):
        def near(b, h, q_idx, kv_idx):
            return q_idx - kv_idx < window

        return attn.torch.flex_attention(q * 2, q, q, mask_mod=near) + 1

    q = torch.randn(1, 2, 12, 8)
    torch.compiler.reset()
    compiled = torch.compile(run, backend="eager", fullgraph=True)
    for window in (3, 4):
        torch.testing.assert_close(compiled(q, window), run(q, window))
