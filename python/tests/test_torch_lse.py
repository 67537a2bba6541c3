"""Gradients through lse, on every way of a call; a backward that reaches another statistic is refused."""

import copy
import warnings
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attentions import in_8_bits, learned, merge, slopes, tensors, traced  # noqa: E402
from attn.torch import plans, private, statistics  # noqa: E402

SPEC = learned("o, lse")
REFUSED = "max has no gradient, and the backward reached it"


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


def both(o, lse):
    """Where no row is without a key."""
    return sinks(o, lse) + (lse * torch.arange(lse.shape[-1], dtype=lse.dtype)).sum()


def lse_alone(o, lse):
    return lse.square().sum()


def dense(q, k, v, added):
    """o and lse by PyTorch's own operators, of scores to which `added` is added."""
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + added
    rows = torch.arange(q.shape[2])[:, None]
    scores = scores.masked_fill(rows < torch.arange(k.shape[2]), float("-inf"))
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def bias(learns, rows=5):
    distance = torch.arange(rows) - torch.arange(rows)[:, None]
    return learns.double()[:, None, None] * distance


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", [sinks, both, lse_alone], ids=lambda f: f.__name__)
def test_gradients_through_lse(way, loss):
    q, k, v = tensors()
    added = 0 if "flex" in way else bias(slopes())
    expected = torch.autograd.grad(loss(*dense(q, k, v, added)), (q, k, v), materialize_grads=True)
    run = WAYS[way]()
    for _ in range(2):  # the second on a GPU finds a backward through lse
        found = torch.autograd.grad(loss(*run(q, k, v)), (q, k, v))
        for x, y in zip(found, expected):
            torch.testing.assert_close(x, y)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 0.05), (torch.float16, 0.01)])
def test_gradients_through_lse_of_other_types(dtype, tolerance):
    q, k, v = tensors(dtype=dtype)
    o, lse = compiled()(q, k, v)
    assert lse.dtype == torch.float32
    found = torch.autograd.grad(both(o.double(), lse.double()), (q, k, v))
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = torch.autograd.grad(both(*dense(*wide, bias(slopes()))), wide)
    for x, y in zip(found, expected):
        assert x.dtype == dtype
        torch.testing.assert_close(x.double(), y, atol=tolerance, rtol=tolerance)


def test_gradients_of_learned_tensors_through_lse():
    q, k, v = tensors()
    learns, other = slopes(), slopes()
    found = torch.autograd.grad(both(*F(q, k, v, slopes=learns)), learns)
    expected = torch.autograd.grad(both(*dense(q, k, v, bias(other))), other)
    torch.testing.assert_close(found, expected)


def test_gradients_of_sinks_through_lse():
    """The lse of a row that sees no key is the sink."""
    f = attn.compile("""attention x {
      dims B, Hq, Hkv, Sq, Skv, D; learn sinks: f32[Hq]; mask q_idx > kv_idx; sink sinks[h]; outputs o, lse;
    }""")
    q, k, v = tensors()
    learns = slopes()
    o, lse = f(q, k, v, sinks=learns)
    found = torch.autograd.grad(both(o, lse), (q, k, v, learns))
    wide = torch.tensor([0.5, 0.25, 0.125, 0.0], dtype=torch.float64, requires_grad=True)
    keys, values = (x.repeat_interleave(2, 1) for x in (k, v))
    scores = q @ keys.transpose(2, 3) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.ones(5, 5).triu() > 0, float("-inf"))
    scores = torch.cat([scores, wide[:, None, None].expand(2, 4, 5, 1)], -1)
    expected = torch.autograd.grad(both(scores.softmax(-1)[..., :5] @ values, scores.logsumexp(-1)), (q, k, v, wide))
    for x, y in zip(found, expected):
        torch.testing.assert_close(x.double(), y, atol=1e-6, rtol=1e-6)


def test_a_row_without_a_key_ignores_the_gradient_of_its_lse():
    f = attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, D; mask q_idx > kv_idx; outputs o, lse; }")
    q, k, v = tensors()
    o, lse = f(q, k, v)
    assert torch.isneginf(lse[:, :, 0]).all()
    d_lse = torch.ones_like(lse)
    expected = torch.autograd.grad((o, lse), (q, k, v), (torch.zeros_like(o), d_lse), retain_graph=True)
    for value in (5.0, float("nan"), float("inf")):
        d_lse = d_lse.clone()
        d_lse[:, :, 0] = value
        found = torch.autograd.grad((o, lse), (q, k, v), (torch.zeros_like(o), d_lse), retain_graph=True)
        for x, y in zip(found, expected):
            assert torch.equal(x, y) and x.isfinite().all()


@pytest.mark.parametrize("traces", [False, True])
@pytest.mark.parametrize("cuts", [(7,), (2, 3, 9)])
def test_parts_that_are_merged_by_lse_are_one_attention(cuts, traces):
    """Forward and gradients, also where a part has no key of a row."""
    whole = attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, D; mask q_idx >= kv_idx; outputs o, lse; }")
    ends = [0, *cuts, 11]
    parts = [attn.compile(f"attention x {{ dims B, Hq, Hkv, Sq, Skv, D; mask q_idx >= kv_idx + {first};"
                          " outputs o, lse; }") for first in ends[:-1]]

    def merged(q, k, v):
        slices = [slice(*each) for each in zip(ends, ends[1:])]
        return merge([part(q, k[:, :, at], v[:, :, at]) for part, at in zip(parts, slices)])

    q, k, v = tensors(rows=11, keys=11)
    o, lse = (traced(merged) if traces else merged)(q, k, v)
    expected = whole(q, k, v)
    torch.testing.assert_close((o, lse), expected)
    found = torch.autograd.grad(both(o, lse), (q, k, v))
    for x, y in zip(found, torch.autograd.grad(both(*expected), (q, k, v))):
        torch.testing.assert_close(x, y)


def test_the_spec_that_is_merged():
    """specs/merge_by_lse.attn, beside a part with the keys that it lacks, is causal attention."""
    q, k, v = tensors(rows=12, keys=12)
    first = attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, D; mask q_idx >= kv_idx; outputs o, lse; }")
    rest = attn.compile("merge_by_lse", Hq=4, Hkv=2)
    assert "lse" in rest.described.outputs and rest.described.facts["grad_of_lse"]
    found = merge([first(q, k[:, :, :3], v[:, :, :3]), rest(q, k[:, :, 3:], v[:, :, 3:])])
    expected = dense(q, k, v, 0)
    torch.testing.assert_close(found, expected)
    for x, y in zip(torch.autograd.grad(both(*found), (q, k, v)), torch.autograd.grad(both(*expected), (q, k, v))):
        torch.testing.assert_close(x, y)


def test_a_spec_that_names_lse_and_a_backward_that_does_not_reach_it():
    f = attn.compile(SPEC.replace("outputs", "grad q, k, v, slopes, lse; outputs"))
    q, k, v = tensors()
    for loss in (unused, both):
        found = torch.autograd.grad(loss(*f(q, k, v, slopes=slopes())), (q, k, v))
        for x, y in zip(found, torch.autograd.grad(loss(*F(q, k, v, slopes=slopes())), (q, k, v))):
            torch.testing.assert_close(x, y)


def test_packed_sequences():
    f = attn.compile("attention x { dims B = 3, Hq = 2, Hkv = 1, Sq = 7, Skv = 7, D = 8; layout thd;"
                     " mask q_idx >= kv_idx; outputs o, lse; }")
    q = torch.randn(9, 2, 8, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(9, 1, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    starts = torch.tensor([0, 2, 2, 9], dtype=torch.int32)
    o, lse = f(q, k, v, cu_seqlens_q=starts, cu_seqlens_kv=starts)
    weights = torch.randn_like(lse)
    found = torch.autograd.grad(o.sum() + (lse * weights).sum(), (q, k, v))
    expected = [torch.zeros_like(x) for x in (q, k, v)]
    for at in (slice(0, 2), slice(2, 9)):
        some = [x[at].transpose(0, 1)[None].detach().requires_grad_() for x in (q, k, v)]
        one, other = dense(*some, 0)
        loss = one.sum() + (other[0].transpose(0, 1) * weights[at]).sum()
        for x, y in zip(expected, torch.autograd.grad(loss, some)):
            x[at] = y[0].transpose(0, 1)
    for x, y in zip(found, expected):
        torch.testing.assert_close(x, y)


def test_arrays():
    q, k, v = (x.detach().numpy() for x in tensors())
    learns = slopes().detach().numpy()
    o, lse = F(q, k, v, slopes=learns)
    do, dlse = (torch.randn(x.shape, dtype=torch.float64).numpy() for x in (o, lse))
    found = F.gradients(q, k, v, slopes=learns, do=do, dlse=dlse)
    given = tensors()
    expected = torch.autograd.grad(F(*given, slopes=slopes()), given, [torch.from_numpy(x) for x in (do, dlse)])
    for name, y in zip("qkv", expected):
        torch.testing.assert_close(torch.from_numpy(found[name]), y)
    swapped = F.gradients(*(x.swapaxes(1, 2) for x in (q, k, v)), slopes=learns, do=do.swapaxes(1, 2), dlse=dlse,
                          layout="bshd")
    torch.testing.assert_close(torch.from_numpy(swapped["k"].swapaxes(1, 2).copy()), expected[1])


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


STATISTICS = attn.compile(learned("o, max"))


def greatest(q, k, v):
    return STATISTICS(q, k, v, slopes=slopes())


@pytest.mark.parametrize("grad", ["q", "k", "v", ""])
def test_each_input_alone(grad):
    """Also where only a learned tensor has a gradient."""
    q, k, v = tensors(grad=grad)
    learns = slopes()
    o, lse = F(q, k, v, slopes=learns)
    lse.sum().backward()
    assert learns.grad is not None and [x.grad is not None for x in (q, k, v)] == [x in grad for x in "qkv"]


def test_a_graph_that_is_kept():
    q, k, v = tensors()
    o, lse = compiled()(q, k, v)
    once = torch.autograd.grad(o.sum(), (q, k), retain_graph=True)
    both_of_them = torch.autograd.grad(o.sum() + lse.sum(), (q, k), retain_graph=True)
    alone = torch.autograd.grad(lse.sum(), (q, k), retain_graph=True)
    for x, y, z in zip(once, alone, both_of_them):
        torch.testing.assert_close(x + y, z)
    for x, y in zip(once, torch.autograd.grad(o.sum(), (q, k))):
        torch.testing.assert_close(x, y)
    o, largest = greatest(q, k, v)
    o.sum().backward(retain_graph=True)
    with pytest.raises(attn.UnsupportedError, match=REFUSED):
        torch.autograd.grad(largest[0, 0, 1], q)


def test_a_second_derivative_is_refused():
    q, k, v = tensors()
    _, lse = compiled()(q, k, v)
    (first,) = torch.autograd.grad(lse.square().sum(), q, create_graph=True)
    with pytest.raises(attn.UnsupportedError, match="second derivatives"):
        first.sum().backward()


def test_a_checkpoint():
    q, k, v = tensors()
    o, lse = torch.utils.checkpoint.checkpoint(compiled(), q, k, v, use_reentrant=False)
    found = torch.autograd.grad(sinks(o, lse), (q, k, v))
    for x, y in zip(found, torch.autograd.grad(sinks(*compiled()(q, k, v)), (q, k, v))):
        torch.testing.assert_close(x, y)


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
        if name == "lse":
            value.sum().backward(retain_graph=True)
            continue
        with pytest.raises(attn.UnsupportedError, match=f"{name} has no gradient, and the backward reached it"):
            value.sum().backward(retain_graph=True)


def test_lse_without_the_sink_is_of_the_scores_alone():
    text = "attention x {{ dims B, Hq, Hkv, Sq, Skv, D; {} }}"
    q, k, v = tensors()
    _, lse, alone = attn.compile(text.format("sink 0.5; outputs o, lse, lse_without_sink;"))(q, k, v)
    torch.testing.assert_close(alone, attn.compile(text.format("outputs lse;"))(q, k, v))
    torch.testing.assert_close(lse, torch.logaddexp(alone, torch.full_like(alone, 0.5)))
    with pytest.raises(attn.UnsupportedError, match="lse_without_sink has no gradient, and"):
        alone.sum().backward()


def test_what_is_largest_is_no_statistic():
    f, scales = in_8_bits()
    q, k, v = tensors(dtype=torch.float32)
    for run in (f, traced(f)):
        o, lse, amax_s, amax_o = run(q, k, v, **scales)
        assert not amax_s.requires_grad and not amax_o.requires_grad
        (o.sum() + amax_o.sum()).backward(retain_graph=True)
        with pytest.raises(attn.UnsupportedError, match="lse has no gradient here, and the backward reached it"):
            sinks(o, lse).backward()


def test_an_attention_of_several_gpus():
    """All ranks must know whether a backward goes through lse, so the spec says it."""
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        for spec in (SPEC, SPEC.replace("outputs", "grad q, k, v, slopes, lse; outputs")):
            sharded = attn.torch.distribute(spec, B=2, Hq=4, Hkv=2, Sq=5, Skv=5, D=16)
            learns = slopes()
            run = lambda q, k, v: sharded(q, k, v, slopes=learns)  # noqa: B023, E731
            for function in (run, traced(run)):
                q, k, v = tensors()
                o, lse = function(q, k, v)
                if spec is SPEC:
                    with pytest.raises(attn.UnsupportedError, match="lse has no gradient here") as caught:
                        sinks(o, lse).backward()
                    assert "`grad q, k, v, lse;`" in str(caught.value)
                else:
                    expected = torch.autograd.grad(both(*F(q, k, v, slopes=learns)), (q, k, v, learns))
                    for x, y in zip(torch.autograd.grad(both(o, lse), (q, k, v, learns)), expected):
                        torch.testing.assert_close(x, y)
                o, lse = function(q, k, v)
                expected = torch.autograd.grad(F(q, k, v, slopes=learns)[0].sum(), (q, k, v))
                for x, y in zip(torch.autograd.grad(weighted_with_zero(o, lse), (q, k, v)), expected):
                    torch.testing.assert_close(x, y)
            sharded.close()
    finally:
        dist.destroy_process_group()


class _OnDevice:
    is_cuda = True

    def any(self):
        return torch.tensor(True)


def test_a_capture_asserts_on_the_device(monkeypatch):
    asserted = []
    monkeypatch.setattr(statistics, "is_capturing", lambda: True)
    monkeypatch.setattr(private, "assert_later", lambda *args: asserted.append(args))
    statistics.refuse(["max"], [_OnDevice()])
    assert [(bool(x), message) for x, message in asserted] == [(False, statistics._message("max"))]
    facts = SimpleNamespace(quantized=None, reaches_lse=False, through_lse={})
    assert statistics.gradient_of_lse(facts, ["lse"], [_OnDevice()]) is None
    assert len(asserted) == 2 and "call it once" in asserted[1][1]
    facts.through_lse[None] = object()  # after a call that was not captured
    assert isinstance(statistics.gradient_of_lse(facts, ["lse"], [_OnDevice()]), _OnDevice)
    assert len(asserted) == 2


def test_a_backward_through_lse_has_a_plan_of_its_own(monkeypatch):
    """It is compiled by the first backward that reaches lse, with the forward's random numbers."""
    built = []

    class Attention:
        name, builds = "x", True

        def build(self, sizes, **options):
            built.append(options)
            raise attn.UnsupportedError("stop")

    facts = SimpleNamespace(differentiated=("q", "k", "v"), random=False)
    monkeypatch.setattr(plans, "facts_of", lambda _: facts)
    pair = SimpleNamespace(by_cudnn=True)
    with pytest.raises(attn.UnsupportedError, match="stop"):
        plans._make_backward(Attention(), None, pair, torch.device("cuda", 0))
    assert built == [{"edits": ["--gradients", "q,k,v,lse"], "direction": "bwd", "target": "native"}]
    facts.random = True
    with pytest.raises(attn.UnsupportedError, match="random numbers of this dropout") as raised:
        plans._make_backward(Attention(), None, pair, torch.device("cuda", 0))
    assert 'engine="native"' in str(raised.value)
    Attention.builds = False
    with pytest.raises(attn.UnsupportedError, match="no plan for a backward that reaches lse") as raised:
        plans._make_backward(Attention(), None, pair, torch.device("cuda", 0))
    assert "`grad q, k, v, lse;`" in str(raised.value)


def test_a_refused_backward_through_lse_is_not_asked_for_again():
    """Gradients of lse that are zero need none."""
    facts = attn.torch.facts.facts_of(attn.compile("attention x { dims B, Hq, Hkv, Sq, Skv, D; outputs o, lse; }"))
    one, zero = torch.ones(2), torch.zeros(2)
    assert statistics.gradient_of_lse(facts, ["lse"], [one]) is one  # whose backward is refused after that
    assert statistics.gradient_of_lse(facts, ["lse"], [zero]) is None
    facts.through_lse[None] = object()  # once one was made, gradients are not looked at
    assert statistics.gradient_of_lse(facts, ["lse"], [zero]) is zero


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
    copy.copy(layer)(x)[1].logsumexp(-1).sum().backward()
