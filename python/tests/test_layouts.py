"""The order of dimensions in Python: [B, H, S, D], and [B, S, H, D] by layout="bshd"."""

import warnings

import numpy as np
import pytest

import attn

GROUPED = "attention grouped { dims B, Hq, Hkv, Sq, Skv, D; mask q_idx >= kv_idx; outputs lse, o; }"
B, HQ, HKV, S, D = 2, 4, 2, 7, 8
DO = np.random.default_rng(1).standard_normal((B, HQ, S, D))


def arrays(rows=S, keys=S, heads=HQ, key_heads=HKV):
    random = np.random.default_rng(0)
    return [random.standard_normal((B, h, s, D)) for h, s in ((heads, rows), (key_heads, keys), (key_heads, keys))]


def other(*arrays):
    return [x.swapaxes(1, 2) for x in arrays]


@pytest.mark.parametrize("where", ["compile", "call"])
def test_arrays(where):
    said = {"layout": "bshd"}
    f = attn.compile(GROUPED, **(said if where == "compile" else {}))
    options = said if where == "call" else {}
    q, k, v = arrays()
    expected_lse, expected = attn.compile(GROUPED)(q, k, v)
    lse, o = f(*other(q, k, v), **options)
    assert o.shape == (B, S, HQ, D) and lse.shape == (B, HQ, S)
    np.testing.assert_array_equal(o.swapaxes(1, 2), expected)
    np.testing.assert_array_equal(lse, expected_lse)
    found = f.gradients(*other(q, k, v), do=DO.swapaxes(1, 2), **options)
    for name, gradient in attn.compile(GROUPED).gradients(q, k, v, do=DO).items():
        np.testing.assert_array_equal(found[name].swapaxes(1, 2), gradient)
    q, k, v = other(q, k, v)
    np.testing.assert_array_equal(f(q=q.tolist(), v=v, k=k, **options)[1], o)
    np.testing.assert_array_equal(attn.compile(GROUPED, layout="bshd")(*other(q, k, v), layout="bhsd")[0], lse)


@pytest.mark.parametrize("way", ["eager", "torch.compile", "bucketed"])
def test_tensors(way):
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    f = attn.compile(GROUPED, layout="bshd")
    run = {"eager": f, "torch.compile": torch.compile(f, backend="aot_eager", fullgraph=True),
           "bucketed": f.bucketed(8)}[way]
    tensors = [torch.tensor(x).transpose(1, 2).contiguous().requires_grad_() for x in arrays()]
    lse, o = run(*tensors)
    expected_lse, expected = attn.compile(GROUPED)(*(x.transpose(1, 2) for x in tensors))
    torch.testing.assert_close(o, expected.transpose(1, 2))
    torch.testing.assert_close(lse, expected_lse)
    for found, wanted in zip(*(torch.autograd.grad(x.square().sum(), tensors) for x in (o, expected))):
        torch.testing.assert_close(found, wanted)
    if way == "eager":
        torch.testing.assert_close(f(q=tensors[0], k=tensors[1], v=tensors[2])[1], o)
        torch.testing.assert_close(attn.torch.call(f, *tensors)[1], o)
        torch.testing.assert_close(attn.compile(GROUPED)(*tensors, layout="bshd")[1], o)


def test_traced_functions():
    f = attn.compile(mask_mod=lambda b, h, i, j: i >= j, B=B, Hq=HQ, Hkv=HKV, Sq=S, D=D, layout="bshd")
    assert "layout  bshd;" in f.spec
    q, k, v = arrays()
    np.testing.assert_array_equal(f(*other(q, k, v)).swapaxes(1, 2), attn.compile(GROUPED)(q, k, v)[1])
    with pytest.raises(attn.BindingError, match="q has 7 heads and 4 rows, and `traced` 4 heads and 7 rows"):
        f(q, k, v)


SPECS = {
    "by numbers": "dims B, Hq = 32, Hkv = 8, Sq, Skv, D;",
    "by division": "dims B, Hq, Hkv = Hq // 4, Sq, Skv, D;",
    "all heads": "dims B, Hq, Sq, Skv, D;",
    "rows": "dims B, Hq, Hkv, Sq, D;",
    "named rows": "dims B, Hq, Hkv, Sq, Skv = Sq, D;",
    "all rows and heads": "dims B, Hq, Sq, D;",
    "rows and heads": "dims B, Hq = 4, Hkv = 4, Sq = 7, Skv, D;",
}


@pytest.mark.parametrize("kind", ["arrays", "tensors"])
@pytest.mark.parametrize("dims, sizes, words", [
    ("by numbers", {"key_heads": 2}, "q has 4 heads and k 2, but in `x` 4 heads share one"),
    ("by numbers", {"key_heads": 4}, "q has 4 heads and k 4, but in `x` 4 heads share one"),
    ("by division", {}, "q has 4 heads and k 2, but in `x` 4 heads share one"),
    ("all heads", {}, "q has 4 heads and k 2, but in `x` Hkv is Hq"),
    # [B, 7, 4, D] and [B, 7, 2, D]: rows in the place of heads.
    ("rows", {"heads": 7, "key_heads": 7, "rows": 4, "keys": 2}, "q has 4 rows and k 2, but in `x` Skv is Sq"),
    ("named rows", {"heads": 7, "key_heads": 7, "rows": 4, "keys": 2}, "q has 4 rows and k 2"),
    ("all rows and heads", {"heads": 7, "key_heads": 7, "rows": 4, "keys": 2}, "q has 4 rows and k 2"),
    ("rows and heads", {"heads": 7, "key_heads": 7, "rows": 4, "keys": 4}, "q has 7 heads and 4 rows, and `x` 4"),
])
def test_what_contradicts_the_spec_is_refused(kind, dims, sizes, words):
    f = attn.compile(f"attention x {{ {SPECS[dims]} }}")
    q, k, v = arrays(**sizes)
    if kind == "tensors":
        torch = pytest.importorskip("torch")
        q, k, v = map(torch.tensor, (q, k, v))
    with pytest.raises(attn.BindingError, match=words) as caught:
        f(q, k, v)
    assert "tensors in Python are [B, H, S, D]" in str(caught.value)
    assert "layout=\"bshd\" takes [B, S, H, D]" in str(caught.value)


def test_what_the_refusals_propose():
    q, k, v = arrays(heads=7, key_heads=7, rows=4, keys=2)  # of 4 and 2 heads, in the other order
    f = attn.compile(f"attention x {{ {SPECS['rows']} }}")
    assert f(q, k, v, layout="bshd").shape == q.shape
    assert f(q, k, v, layout="bhsd").shape == q.shape
    assert attn.compile(f.spec, Skv=2)(q, k, v).shape == q.shape
    by_numbers = attn.compile(f"attention x {{ {SPECS['by numbers']} }}", Hq=4, Hkv=2)
    assert by_numbers(*arrays()).shape == arrays()[0].shape


@pytest.mark.parametrize("dims, sizes", [
    ("by numbers", {"heads": 8}), ("by division", {"key_heads": 1}), ("all heads", {"key_heads": 4}),
    ("rows", {"rows": 5, "keys": 9}), ("named rows", {"rows": 1}), ("rows", {}), ("all heads", {"key_heads": 4, "rows": 9}),
    ("all rows and heads", {"key_heads": 4, "rows": 14, "keys": 7})])
def test_other_numbers_are_those_of_the_tensors(dims, sizes):
    q, k, v = arrays(**sizes)
    assert attn.compile(f"attention x {{ {SPECS[dims]} }}")(q, k, v).shape == q.shape


OPEN = "attention x { dims B, Hq, Hkv, Sq, Skv, D; outputs o; }"


@pytest.mark.parametrize("kind", ["arrays", "tensors"])
def test_more_heads_than_any_model_has_are_warned_of(kind):
    """[B, S, H, D] tensors whose sizes fit: 300 rows and 2 heads."""
    f, inputs = attn.compile(OPEN), arrays(heads=300, key_heads=300, rows=2, keys=2)
    if kind == "tensors":
        torch = pytest.importorskip("torch")
        inputs = [torch.tensor(x) for x in inputs]
    with pytest.warns(attn.SpecWarning, match=r"k has 300 heads and 2 keys, read as \[B, H, S, D\].*\"bshd\"") as told:
        f(*inputs)
    assert told[0].filename == __file__
    usual = arrays(heads=32, key_heads=8, rows=1, keys=4), arrays(heads=257, key_heads=257, rows=1, keys=257)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for order in ("bhsd", "bshd"):  # it was said
            f(*inputs, layout=order)
        for each in usual:
            f(*each)


def test_errors_about_sizes_say_the_order():
    f = attn.compile(GROUPED)
    q, k, v = arrays()
    note = "tensors in Python are [B, H, S, D]"
    for wrong in ((q[0], k, v), (q, k[:1], v), (q, k, v[:, :, 1:]), (q[..., 1:], k, v), (q[:, :3], k, v)):
        with pytest.raises(attn.BindingError) as caught:
            f(*wrong)
        assert note in str(caught.value)
    with pytest.raises(attn.BindingError, match=r"must be \[B, Sq, Hq, D\]") as caught:
        f(q[0], k, v, layout="bshd")
    assert "by layout=\"bshd\", tensors are [B, S, H, D]" in str(caught.value)
    reads = attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, D; tensor t: f32[Skv]; score score + t[kv_idx]; }")
    with pytest.raises(attn.BindingError, match=r"by q, k and v, B = 2, Hq = 4, Hkv = 2, Sq = 7, Skv = 7") as caught:
        reads(q, k, v, t=np.zeros(4))
    assert note in str(caught.value)


def test_what_is_no_order():
    with pytest.raises(attn.ArgumentError, match="layout is 'bsdh'; it must be \"bhsd\""):
        attn.compile(GROUPED, layout="bsdh")
    with pytest.raises(attn.ArgumentError, match="layout is 'thd'.*\n.*`layout thd` in their spec"):
        attn.compile(GROUPED)(*arrays(), layout="thd")
    with pytest.raises(attn.ArgumentError, match="`thd` has packed sequences or pages"):
        attn.compile("thd", Hq=4, Hkv=2)(*arrays(), layout="bshd")


def test_several_gpus_take_one_order():
    torch = pytest.importorskip("torch")
    import attn.torch

    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(attn.ArgumentError, match="was compiled for tensors"):
            attn.torch.distribute(attn.compile(GROUPED, layout="bshd"), B=B, Hq=HQ, Hkv=HKV, Sq=S, Skv=S, D=D)
    finally:
        dist.destroy_process_group()


def test_what_a_spec_says_of_heads():
    def group(dims, **bindings):
        return attn.Spec(f"attention x {{ {dims} }}").described(bindings).facts["group"]

    assert group("dims B, Hq = 32, Hkv = 8, Sq, D;") == 4 == group("dims B, Hq = 8, Hkv = 2, Sq, D;")
    assert group("dims B, Hq, Sq, D;") == 1 and group("dims B, Hq, Sq, D;", Hq=8, Hkv=4) == 2
    assert group("dims B, Hq, Hkv, Sq, D;") is None and group("dims B, Hq, Hkv = 2, Sq, D;") is None
    assert group("dims B, Hq = 8, Hkv, Sq, D;", Hkv=[4, 8]) is None
    assert group("dims B, Hq, Hkv, Sq, D;", Hq=8, Hkv=4) == 2
