"""The statistics beside o have no gradient: a backward that reaches them is refused, on every way of a call."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attentions import in_8_bits, learned, slopes, tensors, traced  # noqa: E402
from attn.torch import plans, statistics  # noqa: E402

SPEC = learned("o, lse")
REFUSED = "lse has no gradient yet, and the backward reached it"


F = attn.compile(SPEC)


def compiled(**options):
    learns = slopes()
    return lambda q, k, v: F(q, k, v, slopes=learns, **options)


def flex(q, k, v):
    return attn.torch.flex_attention(q, k, v, mask_mod=lambda b, h, i, j: i >= j, enable_gqa=True, return_lse=True)


WAYS = {
    "compiled": compiled,
    "bshd": lambda: lambda *x: [y.transpose(1, 2) if y.dim() == 4 else y for y in compiled(layout="bshd")(
        *(one.transpose(1, 2) for one in x))],
    "flex_attention": lambda: flex,
    "torch.compile": lambda: traced(compiled()),
    "torch.compile of flex_attention": lambda: traced(flex, fullgraph=False),
}


def sinks(o, lse):
    """As models compute them that have no sink in their attention."""
    return (o * torch.sigmoid(lse - 0.5)[..., None].to(o.dtype)).sum()


def unused(o, lse):
    return o.sum()


def detached(o, lse):
    return (o * torch.sigmoid(lse.detach())[..., None].to(o.dtype)).sum()


def weighted_with_zero(o, lse):
    return o.sum() + (lse * 0).sum()


def chosen_nowhere(o, lse):
    return o.sum() + torch.where(torch.zeros_like(lse, dtype=torch.bool), lse, 1.0).sum()


@pytest.mark.parametrize("way, dtype", [*((way, torch.float64) for way in WAYS), *(
    ("compiled", dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16))])
def test_a_backward_that_reaches_lse_is_refused(way, dtype):
    q, k, v = tensors(dtype=dtype)
    o, lse = WAYS[way]()(q, k, v)
    with pytest.raises(attn.Unsupported, match=REFUSED) as caught:
        sinks(o, lse).backward()
    assert "sink sinks[h]" in str(caught.value) and "lse.detach()" in str(caught.value)
    assert q.grad is k.grad is v.grad is None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", [unused, detached, weighted_with_zero, chosen_nowhere], ids=lambda f: f.__name__)
def test_where_lse_does_not_count_gradients_are_those_of_o(way, loss):
    q, k, v = tensors()
    o, lse = WAYS[way]()(q, k, v)
    weight = detached if loss is detached else unused
    found = torch.autograd.grad(loss(o, lse), (q, k, v), retain_graph=True)
    expected = torch.autograd.grad(weight(o, lse.detach()), (q, k, v))
    for x, y in zip(found, expected):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("grad", ["q", "k", "v", ""])
def test_each_input_alone(grad):
    """Also where only a learned tensor has a gradient."""
    q, k, v = tensors(grad=grad)
    o, lse = compiled()(q, k, v)
    with pytest.raises(attn.Unsupported, match=REFUSED):
        lse.sum().backward()


def test_a_graph_that_is_kept():
    q, k, v = tensors()
    o, lse = compiled()(q, k, v)
    for _ in range(2):
        o.sum().backward(retain_graph=True)
        with pytest.raises(attn.Unsupported, match=REFUSED):
            (o.sum() + lse.sum()).backward(retain_graph=True)
    with pytest.raises(attn.Unsupported, match=REFUSED):
        torch.autograd.grad(lse[0, 0, 1], q)


def test_a_checkpoint():
    q, k, v = tensors()
    o, lse = torch.utils.checkpoint.checkpoint(compiled(), q, k, v, use_reentrant=False)
    with pytest.raises(attn.Unsupported, match=REFUSED):
        sinks(o, lse).backward()


def test_without_gradients_lse_is_a_tensor_like_any():
    with torch.no_grad():
        assert not compiled()(*tensors())[1].requires_grad
    assert not flex(*tensors(grad=""))[1].requires_grad


@pytest.mark.parametrize("traces", [False, True])
@pytest.mark.parametrize("outputs", ["lse, o", "o, max, sum_exp", "lse", "max"])
def test_other_outputs_and_orders(outputs, traces):
    f = attn.compile(f"attention x {{ dims B, Hq, Hkv, Sq, Skv, D; outputs {outputs}; }}")
    q, k, v = tensors()
    found = (traced(f) if traces else f)(q, k, v)
    named = dict(zip(outputs.split(", "), found if isinstance(found, tuple) else [found]))
    expected = attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, D; }")(q, k, v)
    if "o" in named:
        x, y = (torch.autograd.grad(o.square().sum(), (q, k, v), retain_graph=True)
                for o in (named.pop("o"), expected))
        for one, other in zip(x, y):
            torch.testing.assert_close(one, other)
    for name, value in named.items():
        with pytest.raises(attn.Unsupported, match=f"{name} has no gradient yet"):
            value.sum().backward(retain_graph=True)


def test_lse_without_the_sink_is_of_the_scores_alone():
    text = "attention x {{ dims B, Hq, Hkv, Sq, Skv, D; {} }}"
    q, k, v = tensors()
    _, lse, alone = attn.compile(text.format("sink 0.5; outputs o, lse, lse_without_sink;"))(q, k, v)
    torch.testing.assert_close(alone, attn.compile(text.format("outputs lse;"))(q, k, v))
    torch.testing.assert_close(lse, torch.logaddexp(alone, torch.full_like(alone, 0.5)))
    with pytest.raises(attn.Unsupported, match="lse_without_sink has no gradient yet"):
        alone.sum().backward()


def test_what_is_largest_is_no_statistic():
    f, scales = in_8_bits()
    q, k, v = tensors(dtype=torch.float32)
    for run in (f, traced(f)):
        o, lse, amax_s, amax_o = run(q, k, v, **scales)
        assert not amax_s.requires_grad and not amax_o.requires_grad
        (o.sum() + amax_o.sum()).backward(retain_graph=True)
        with pytest.raises(attn.Unsupported, match=REFUSED):
            sinks(o, lse).backward()


def test_an_attention_of_several_gpus():
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        sharded = attn.torch.distribute(SPEC, B=2, Hq=4, Hkv=2, Sq=5, Skv=5, D=16)
        learns = slopes()
        run = lambda q, k, v: sharded(q, k, v, slopes=learns)  # noqa: E731
        for function in (run, traced(run)):
            q, k, v = tensors()
            o, lse = function(q, k, v)
            with pytest.raises(attn.Unsupported, match=REFUSED):
                sinks(o, lse).backward()
            o, lse = function(q, k, v)
            expected = torch.autograd.grad(F(q, k, v, slopes=learns)[0].sum(), (q, k, v))
            for x, y in zip(torch.autograd.grad(weighted_with_zero(o, lse), (q, k, v)), expected):
                torch.testing.assert_close(x, y)
        sharded.close()
    finally:
        dist.destroy_process_group()


def test_a_capture_asserts_on_the_device(monkeypatch):
    asserted = []
    monkeypatch.setattr(statistics, "is_capturing", lambda: True)
    monkeypatch.setattr(torch, "_assert_async", lambda *args: asserted.append(args))

    class OfDevice:
        is_cuda = True

        def any(self):
            return torch.tensor(True)

    statistics.refuse(["lse"], [OfDevice()])
    assert [(bool(x), message) for x, message in asserted] == [(False, statistics._message("lse"))]


def test_a_capture_loads_no_plan(monkeypatch):
    monkeypatch.setattr(plans, "is_capturing", lambda: True)
    attention = attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, D; outputs o; }")
    with pytest.raises(attn.BindingError, match="no plan yet") as raised:
        plans._pair(attention, None, False, torch.device("cuda", 0), True)
    assert "f.warm(..)" in str(raised.value)


def test_an_attention_that_was_copied_and_one_that_trains():
    """The first backward of a module, and a step of an optimizer after it."""
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project = torch.nn.Linear(8, 8)
            self.attention = attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, D; outputs o, lse; }")

        def forward(self, x):
            return self.attention(self.project(x), x, x)

    layer = Layer()
    x = torch.randn(1, 2, 3, 8)
    o, lse = layer(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        o.sum().backward()
    with pytest.raises(attn.Unsupported, match=REFUSED):
        copy.copy(layer)(x)[1].logsumexp(-1).sum().backward()
