"""The arguments of attn.torch.flex_attention, as FlexAttention takes them."""

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import AuxOutput, AuxRequest, flex_attention  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attentions import traced  # noqa: E402
from attn.torch import flex  # noqa: E402
from attn.torch.calls import beside  # noqa: E402


def qkv(batch=3, key_batch=3, heads=4, key_heads=4, rows=6, keys=7, **options):
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(n, h, length, 8, generator=generator, dtype=torch.float64).to(**options).requires_grad_()
            for n, h, length in ((batch, heads, rows), (key_batch, key_heads, keys), (key_batch, key_heads, keys))]


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def shifted(score, b, h, q_idx, kv_idx):
    return score * 2 + 0.1 * h * (kv_idx - q_idx)


def scores(q, k):
    h, i, j = (torch.arange(n) for n in (4, q.shape[2], k.shape[2]))
    score = q @ k.transpose(-1, -2) / 8 ** 0.5 * 2 + 0.1 * h[:, None, None] * (j - i[:, None])
    return score.masked_fill(j > i[:, None], -torch.inf)


@pytest.mark.parametrize("request_, wanted", [
    (AuxRequest(), ()), (AuxRequest(lse=True), ("lse",)), (AuxRequest(max_scores=True), ("max_scores",)),
    (AuxRequest(lse=True, max_scores=True), ("lse", "max_scores"))])
def test_aux(request_, wanted):
    q, k, v = qkv()
    o, aux = attn.torch.flex_attention(q, k, v, shifted, mask_mod=causal, return_aux=request_)
    score = scores(q, k)
    torch.testing.assert_close(o, score.softmax(-1) @ v)
    assert isinstance(aux, AuxOutput)
    named = {"lse": score.logsumexp(-1), "max_scores": score.amax(-1)}
    for name, value in named.items():
        found = getattr(aux, name)
        assert (found is None) == (name not in wanted)
        if found is not None:
            torch.testing.assert_close(found, value)


def test_aux_has_the_gradient_of_lse_and_none_of_the_largest_scores():
    q, k, v = qkv()
    o, aux = attn.torch.flex_attention(q, k, v, shifted, mask_mod=causal,
                                       return_aux=AuxRequest(lse=True, max_scores=True))
    assert not aux.max_scores.requires_grad
    score = scores(q, k)
    found = torch.autograd.grad(o.sum() + aux.lse.square().sum(), (q, k, v))
    wanted = torch.autograd.grad((score.softmax(-1) @ v).sum() + score.logsumexp(-1).square().sum(), (q, k, v))
    torch.testing.assert_close(found, wanted)


def test_aux_of_rows_that_see_nothing():
    o, aux = attn.torch.flex_attention(*qkv(), mask_mod=lambda b, h, i, j: i > j,
                                       return_aux=AuxRequest(lse=True, max_scores=True))
    assert (aux.lse[:, :, 0] == -torch.inf).all() and (aux.max_scores[:, :, 0] == -torch.inf).all()
    assert (o[:, :, 0] == 0).all()


def test_lse_by_both_names():
    q, k, v = qkv()
    o, lse = attn.torch.flex_attention(q, k, v, return_lse=True)
    torch.testing.assert_close(attn.torch.flex_attention(q, k, v, return_aux=AuxRequest(lse=True))[1].lse, lse)
    with pytest.raises(attn.BindingError, match="return_lse and return_aux were both given"):
        attn.torch.flex_attention(q, k, v, return_lse=True, return_aux=AuxRequest())


@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_keys_of_one_batch(key_heads):
    """Are those of all batches, and get the sum of their gradients."""
    q, k, v = qkv(key_batch=1, key_heads=key_heads)
    o = attn.torch.flex_attention(q, k, v, mask_mod=causal, enable_gqa=True)
    whole = [x.expand(3, -1, -1, -1) for x in (k, v)]
    wanted = attn.torch.flex_attention(q, *(x.contiguous() for x in whole), mask_mod=causal, enable_gqa=True)
    torch.testing.assert_close(o, wanted)
    d_o = torch.randn_like(o)
    torch.testing.assert_close(torch.autograd.grad(o, (q, k, v), d_o), torch.autograd.grad(wanted, (q, k, v), d_o))
    assert torch.autograd.grad(attn.torch.flex_attention(q, k, v, enable_gqa=True).sum(), k)[0].shape == k.shape


def test_other_batches_are_refused():
    for key_batch in (2, 4):
        with pytest.raises(attn.BindingError, match=f"q has 3 batches, but k and v have {key_batch}"):
            attn.torch.flex_attention(*qkv(key_batch=key_batch))
    q, k, v = qkv(key_batch=1)
    with pytest.raises(attn.BindingError):
        attn.torch.flex_attention(q, k, v.expand(3, -1, -1, -1))


def test_numbers_of_the_cpu_beside_another_device():
    """As PyTorch takes them: q is on a device that is only a shape."""
    scale, shift, table = torch.tensor(2.0, requires_grad=True), torch.tensor(3), torch.zeros(7, device="meta")

    def score_mod(score, b, h, q_idx, kv_idx):
        return score * scale + shift * kv_idx + table[kv_idx] * scale.exp()

    q, k, v = (x.detach().to("meta") for x in qkv(dtype=torch.bfloat16))
    o = attn.torch.flex_attention(q, k, v, score_mod, mask_mod=lambda b, h, i, j: i + shift >= j)
    assert o.device.type == "meta" and o.shape == (3, 4, 6, 8)
    assert beside(scale.reshape(1), torch.device("meta")).device.type == "meta"
    with pytest.raises(attn.BindingError, match="is on cpu, but q on meta"):
        attn.torch.flex_attention(q, k, v, lambda s, b, h, i, j: s + SLOPES[h])


SLOPES = torch.ones(4)


def test_what_is_no_block_mask():
    q, k, v = qkv()
    with pytest.raises(attn.BindingError, match=r"block_mask is a function, not a BlockMask") as caught:
        attn.torch.flex_attention(q, k, v, block_mask=causal)
    assert "flex_attention(.., mask_mod=f)" in str(caught.value)


def test_tensors_that_are_several():
    import torch.distributed as processes
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    parts = [torch.randn(5, 2, 8), torch.randn(7, 2, 8)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
    processes.init_process_group("gloo", store=processes.HashStore(), rank=0, world_size=1)
    try:
        sharded = distribute_tensor(torch.randn(2, 2, 5, 8), init_device_mesh("cpu", (1,)), [Shard(0)])
        f = attn.compile("attention c { dims B, Hq, Sq, D; }")
        for x, words in ((nested, "is a nested tensor"), (sharded, "is a DTensor")):
            with pytest.raises(attn.UnsupportedError, match=words):
                f(x, x, x)
        local = sharded.to_local()
        assert attn.torch.flex_attention(local, local, local).shape == (2, 2, 5, 8)
    finally:
        processes.destroy_process_group()


def test_every_argument_of_flex_attention_has_the_same_name_and_place():
    import inspect

    theirs, ours = (inspect.signature(f).parameters for f in (flex_attention, attn.torch.flex_attention))
    assert list(theirs) == [name for name in ours if name in theirs]
    for name, parameter in theirs.items():
        assert ours[name].kind == parameter.kind and ours[name].default == parameter.default


@pytest.mark.parametrize("batches", [1, 2])
def test_heads_that_are_one_are_not_copied(batches, monkeypatch):
    """But where gradients of them are recorded, of which each head has its own."""
    made, attention_of = [], flex._attention_of
    monkeypatch.setattr(flex, "_attention_of", lambda *args: (made.append(args[-1].sizes), attention_of(*args))[1])
    q = torch.randn(2, 4, 12, 8, requires_grad=True)
    k, v = (torch.randn(batches, 1, 12, 8) for _ in range(2))

    def bias(score, b, h, q_idx, kv_idx):
        return score * (h + 1) + SLOPES[h]

    expanded = [x.expand(2, 4, -1, -1) for x in (k, v)]
    wanted = attn.torch.flex_attention(q, *(x.contiguous() for x in expanded), bias, mask_mod=causal)
    assert made[-1].Hkv == 4
    found = attn.torch.flex_attention(q, *expanded, bias, mask_mod=causal)
    assert made[-1].Hkv == 1
    torch.testing.assert_close(found, wanted)
    d_o = torch.randn_like(found)
    torch.testing.assert_close(*(torch.autograd.grad(o, q, d_o) for o in (found, wanted)))
    leaves = [x.requires_grad_() for x in expanded]
    o = attn.torch.flex_attention(q, *leaves, bias, mask_mod=causal)
    assert made[-1].Hkv == 4
    whole = [x.detach().contiguous().requires_grad_() for x in expanded]
    wanted = attn.torch.flex_attention(q, *whole, bias, mask_mod=causal)
    torch.testing.assert_close(torch.autograd.grad(o, leaves, d_o), torch.autograd.grad(wanted, whole, d_o))


@pytest.mark.parametrize("compiled", [False, True])
def test_each_head_of_a_leaf_has_its_gradient(compiled):
    """Though its heads are one in memory, as those that `expand` made."""
    q = torch.randn(2, 4, 6, 8)
    leaves = [torch.randn(2, 1, 6, 8).expand(2, 4, 6, 8).detach().requires_grad_() for _ in range(2)]
    whole = [x.detach().clone(memory_format=torch.contiguous_format).requires_grad_() for x in leaves]
    computed = traced(attn.torch.flex_attention) if compiled else attn.torch.flex_attention
    d_o = torch.randn(q.shape)
    found = torch.autograd.grad(computed(q, *leaves, mask_mod=causal), leaves, d_o)
    wanted = torch.autograd.grad(attn.torch.flex_attention(q, *whole, mask_mod=causal), whole, d_o)
    torch.testing.assert_close(found, wanted)
    ones = [torch.randn(2, 1, 6, 8).requires_grad_() for _ in range(2)]
    expanded, repeated = [x.expand(2, 4, 6, 8) for x in ones], [x.repeat(1, 4, 1, 1) for x in ones]
    found = torch.autograd.grad(computed(q, *expanded, mask_mod=causal), [*ones, *expanded], d_o)
    o = attn.torch.flex_attention(q, *repeated, mask_mod=causal)
    torch.testing.assert_close(found, torch.autograd.grad(o, [*ones, *repeated], d_o))
