"""attn.torch.Attention: a layer whose learned tensors are parameters."""

import copy

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attentions import learned, slopes, tensors, traced  # noqa: E402


def test_learned_tensors_are_parameters():
    f = attn.compile(learned("o, lse"))
    layer = attn.torch.Attention(learned("o, lse"), Hq=4, learned={"slopes": slopes()})
    assert dict(layer.named_parameters()).keys() == {"slopes"} and layer.slopes.dtype == torch.float32
    inputs = tensors()
    torch.testing.assert_close(layer(*inputs), f(*inputs, slopes=slopes()))
    layer(*inputs)[0].sum().backward()
    assert layer.slopes.grad.shape == (4,)
    other = copy.deepcopy(layer)
    other.load_state_dict({"slopes": torch.zeros(4)})
    torch.testing.assert_close(other(*inputs), f(*inputs, slopes=torch.zeros(4)))
    torch.testing.assert_close(traced(layer)(*inputs), layer(*inputs))
    assert "learned, Hq=4" in repr(layer)


def test_begin_as_zeros_of_the_spec():
    layer = attn.torch.Attention("attention t(M = 3) { dims B, Hq, Sq, D; learn t: f32[Hq, 2 * M + 1];"
                                 " score score + t[h, clamp(kv_idx - q_idx, -M, M) + M]; }", Hq=2, M=4)
    assert layer.t.shape == (2, 9) and not layer.t.any()


def test_what_is_missing_is_said():
    with pytest.raises(attn.ArgumentError, match=r"the shape of `slopes` is \[Hq\], and Hq is not known"):
        attn.torch.Attention(learned("o"))
    with pytest.raises(attn.ArgumentError, match="learns no tensor `slope`"):
        attn.torch.Attention(learned("o"), Hq=4, learned={"slope": slopes()})


def test_mods():
    weights, documents = torch.nn.Parameter(torch.ones(4, dtype=torch.float64)), torch.arange(5) // 2

    def bias(score, b, h, q_idx, kv_idx):
        return score + weights[h] * (kv_idx - q_idx) * weights.sum()

    def same(b, h, q_idx, kv_idx):
        return documents[q_idx] == documents[kv_idx]

    layer = attn.torch.Attention(score_mod=bias, mask_mod=same, B=2, Hq=4, Hkv=2, Sq=5, Skv=5, D=16)
    assert layer.weights is weights and layer.documents is documents and not layer.state_dict().keys() - {"weights"}
    inputs = tensors()
    wanted = attn.torch.flex_attention(*inputs, bias, mask_mod=same, enable_gqa=True)
    torch.testing.assert_close(layer(*inputs), wanted)
    layer(*inputs).sum().backward()
    assert weights.grad is not None
    layer.documents = torch.zeros(5, dtype=torch.int64)
    assert not torch.allclose(layer(*inputs), wanted)
    assert layer.to("meta")(*(x.to("meta") for x in inputs)).device.type == "meta"


def test_types_by_their_own_names():
    import datetime

    mods = dict(mask_mod=lambda b, h, i, j: i >= j, B=1, Hq=2, Sq=8, D=16)
    for dtype in (torch.float16, "f16"):
        assert attn.compile(**mods, dtype=dtype).described.dtype == "f16"
    with pytest.raises(attn.SpecError, match="complex64"):
        attn.compile(**mods, dtype=torch.complex64)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        sharded = attn.torch.distribute("document_causal", B=1, Hq=4, Hkv=2, Sq=64, D=32, dtype=torch.float16,
                                        timeout_seconds=datetime.timedelta(minutes=2))
        assert sharded.attention.described.dtype == "f16"
        sharded.close()
    finally:
        torch.distributed.destroy_process_group()


def test_layout():
    layer = attn.torch.Attention(learned("o"), Hq=4)
    inputs = tensors()
    found = layer(*(x.transpose(1, 2) for x in inputs), layout="bshd")
    torch.testing.assert_close(found.transpose(1, 2), layer(*inputs))


SIZES = dict(B=2, Hq=4, Hkv=2, Sq=5, Skv=5, D=16)


def test_tensors_of_which_mods_compute_others():
    """They are the module's: an optimizer finds them, copies have their own, and calls compute of what it has now."""
    weights, table = torch.nn.Parameter(torch.randn(4)), torch.randn(4, 3)

    def bias(score, b, h, q_idx, kv_idx):
        return score + (torch.softmax(weights, 0)[h] + table.T[1][h] * table.max(dim=1)[0][h]) * (kv_idx - q_idx)

    def wanted():
        return attn.torch.flex_attention(*inputs, bias, enable_gqa=True)

    inputs, layer = tensors(), attn.torch.Attention(score_mod=bias, **SIZES)
    assert [*layer.parameters()] == [weights] and any(x is table for x in layer.buffers())
    assert len(layer.state_dict()) == 1
    torch.testing.assert_close(layer(*inputs), wanted())
    torch.testing.assert_close(traced(layer)(*inputs), layer(*inputs))
    layer(*inputs).sum().backward()
    assert weights.grad.abs().sum() > 0
    before, copied = layer(*inputs), copy.deepcopy(layer)
    with torch.no_grad():
        weights.mul_(-3)
        table.mul_(-2)
    torch.testing.assert_close(copied(*inputs), before)
    torch.testing.assert_close(layer(*inputs), wanted())
    copied.load_state_dict(layer.state_dict())
    name, = (name for name, x in layer.named_buffers() if x is table)
    setattr(copied, name, table)
    torch.testing.assert_close(copied(*inputs), wanted())
    assert layer.to("meta")(*(x.to("meta") for x in inputs)).device.type == "meta"


def test_a_tensor_that_is_captured_as_it_is_and_computed_with_is_there_once():
    weights = torch.nn.Parameter(torch.randn(4))

    def bias(score, b, h, q_idx, kv_idx):
        return score + (torch.softmax(weights, 0)[h] + weights[h]) * kv_idx

    inputs, layer = tensors(), attn.torch.Attention(score_mod=bias, **SIZES)
    (name, parameter), = layer.named_parameters()
    assert parameter is weights
    copied = copy.deepcopy(layer)
    with torch.no_grad():
        copied.get_parameter(name).zero_()
        weights.zero_()
    torch.testing.assert_close(copied(*inputs), attn.torch.flex_attention(*inputs, bias, enable_gqa=True))


def test_captured_tensors_that_no_optimizer_finds_are_refused():
    leaf = torch.randn(4, requires_grad=True)
    for tensor in (leaf, leaf * 2):
        with pytest.raises(attn.ArgumentError, match="requires a gradient and is no Parameter"):
            attn.torch.Attention(score_mod=lambda s, b, h, i, j: s + tensor[h] * j, **SIZES)


def test_in_a_model_that_is_cast():
    inputs = [x.bfloat16() for x in tensors()]
    layer = attn.torch.Attention(learned("o"), Hq=4, learned={"slopes": slopes()}).bfloat16()
    assert layer.slopes.dtype == torch.bfloat16
    found = layer(*inputs)
    torch.testing.assert_close(found, attn.compile(learned("o"))(*inputs, slopes=slopes().bfloat16().float()))
    found.sum().backward()
    assert layer.slopes.grad.dtype == torch.bfloat16
    weights = torch.nn.Parameter(torch.randn(4))
    layer = attn.torch.Attention(score_mod=lambda s, b, h, i, j: s + weights[h] * weights.softmax(0)[h] * j, **SIZES)
    assert layer.bfloat16()(*inputs).dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["training", "forward", "attention"])
def test_names_that_modules_have(name):
    with pytest.raises(attn.ArgumentError, match=f"`{name}` is a tensor of the attention, and modules have"):
        attn.torch.Attention(learned("o").replace("slopes", name), Hq=4)


def test_learned_elements_of_other_shapes_are_refused():
    with pytest.raises(attn.ArgumentError, match=r"has the shape \[1\]; it must be \[4\]"):
        attn.torch.Attention(learned("o"), Hq=4, learned={"slopes": torch.ones(1)})
    weights = torch.nn.Parameter(torch.randn(4))
    with pytest.raises(attn.ArgumentError, match="is computed by a mod of other tensors"):
        attn.torch.Attention(score_mod=lambda s, b, h, i, j: s + weights.softmax(0)[h] * j, **SIZES,
                             learned={"weights": torch.ones(4)})
