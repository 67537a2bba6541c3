"""Caches whose keys hold their values, and keys that lists name, against PyTorch's own operators."""

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attn.errors import BindingError, UnsupportedError  # noqa: E402

LATENT = """
attention latent {
  dims B, Hq, Hkv, Sq, Skv, Dqk;
  values k[0..24];
  mask q_idx + Skv - Sq >= kv_idx;
  outputs o, lse;
}"""
CHOSEN = """
attention chosen {
  dims B = 2, Hq = 4, Hkv = 1, Sq = 3, Skv = 50, Dqk = 40;
  tensor listed: i32[B, Sq, 12];
  tensor count: i32[B, Sq];
  values k[0..32];
  gather listed, count;
}"""
PAGED = """
attention paged {
  dims B = 2, Hq = 4, Hkv = 1, Sq = 1, Skv = 40, Dqk = 40;
  layout paged(page = 8, pages = 12);
  lengths kv;
  values k[0..32];
}"""
DEVICES = [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU"))]


def made(*shape, device="cpu", seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16().to(device)


def attend(q, k, width, hidden):
    k = k.float().repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = q.float() @ k.transpose(2, 3) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(hidden, float("-inf"))
    weights = scores.softmax(-1).nan_to_num(0)
    return weights @ k[..., :width], scores.logsumexp(-1)


@pytest.mark.parametrize("device", DEVICES)
def test_v_is_left_out_or_none(device):
    q, k = made(2, 6, 5, 40, device=device), made(2, 3, 33, 40, device=device, seed=2)
    f = attn.compile(LATENT)
    hidden = torch.arange(5, device=device)[:, None] + 28 < torch.arange(33, device=device)
    o, lse = attend(q, k, 24, hidden)
    for args in ((q, k), (q, k, None)):
        found = f(*args)
        torch.testing.assert_close(found[0].float(), o, atol=2e-2, rtol=2e-2)
        torch.testing.assert_close(found[1], lse, atol=2e-2, rtol=2e-2)
    by_rows = f(q.transpose(1, 2).contiguous(), k.transpose(1, 2).contiguous(), layout="bshd")[0]
    torch.testing.assert_close(by_rows.transpose(1, 2).float(), o, atol=2e-2, rtol=2e-2)


def test_arrays_of_numpy_take_no_v():
    q, k = (x.float().numpy() for x in (made(1, 2, 3, 40), made(1, 2, 9, 40)))
    o = attn.compile(LATENT)(q, k)[0]
    assert o.shape == (1, 2, 3, 24)


def test_a_v_is_refused():
    q, k = made(1, 2, 3, 40), made(1, 2, 9, 40)
    with pytest.raises(BindingError, match="v is a part of k"):
        attn.compile(LATENT)(q, k, k[..., :24])
    with pytest.raises(BindingError, match="k must be given"):
        attn.compile(LATENT)(q)
    with pytest.raises(BindingError, match="leaves Dv open"):
        attn.compile(LATENT.replace("Dqk;", "Dqk, Dv;").replace("24", "Dv"))(q, k)


@pytest.mark.parametrize("device", DEVICES)
def test_lists_name_keys(device):
    q, k = made(2, 4, 3, 40, device=device), made(2, 1, 50, 40, device=device, seed=2)
    listed = torch.stack([torch.randperm(50)[:12] for _ in range(6)]).view(2, 3, 12).int()
    listed[0, 1, 3] = -1
    count = torch.tensor([[12, 7, 0], [1, 12, 5]], dtype=torch.int32)
    hidden = torch.ones(2, 3, 50, dtype=torch.bool)
    for b in range(2):
        for row in range(3):
            seen = listed[b, row, :count[b, row]]
            hidden[b, row, seen[seen >= 0].long()] = False
    found = attn.compile(CHOSEN)(q, k, listed=listed.to(device), count=count.to(device))
    o, _ = attend(q, k, 32, hidden[:, None].to(device))
    torch.testing.assert_close(found.float(), o, atol=2e-2, rtol=2e-2)
    assert found[0, :, 2].abs().max() == 0


@pytest.mark.parametrize("device", DEVICES)
def test_pages_take_no_v(device):
    q, pool = made(2, 4, 1, 40, device=device), made(12, 1, 8, 40, device=device, seed=2)
    table = torch.tensor([[3, 1, 4, 7, 5], [9, 2, 6, 0, 0]], dtype=torch.int32, device=device)
    lengths = torch.tensor([37, 20], dtype=torch.int32, device=device)
    found = attn.compile(PAGED)(q, pool, page_table=table, lengths_kv=lengths)
    k = pool[table.long()].transpose(1, 2).reshape(2, 1, 40, 40)
    o, _ = attend(q, k, 32, (torch.arange(40, device=device) >= lengths[:, None])[:, None, None])
    torch.testing.assert_close(found.float(), o, atol=2e-2, rtol=2e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gradient_is_refused_with_the_reason():
    q, k = made(1, 2, 3, 40, device="cuda").requires_grad_(), made(1, 2, 9, 40, device="cuda")
    with pytest.raises(UnsupportedError, match="no gradients"):
        attn.compile(LATENT)(q, k)


def test_there_are_no_gradients():
    q, k = made(2, 4, 5, 40).requires_grad_(), made(2, 1, 33, 40, seed=2)
    f = attn.compile(LATENT)
    with pytest.raises(UnsupportedError, match="v is a part of k"):
        f(q, k)
    with torch.no_grad():
        assert f(q, k)[0].shape == (2, 4, 5, 24)
    with pytest.raises(UnsupportedError, match="values that are a part of k"):
        f.gradients(q.detach().float().numpy(), k.float().numpy(), do=None)
    listed, count = torch.zeros(2, 3, 12, dtype=torch.int32), torch.ones(2, 3, dtype=torch.int32)
    with pytest.raises(UnsupportedError, match="has no gradients"):
        attn.compile(CHOSEN)(made(2, 4, 3, 40).requires_grad_(), made(2, 1, 50, 40), listed=listed, count=count)


def test_none_is_no_v_in_rows_either():
    q, k = made(2, 5, 4, 40), made(2, 33, 1, 40, seed=2)
    f = attn.compile(LATENT)
    torch.testing.assert_close(f(q, k, None, layout="bshd")[0], f(q, k, layout="bshd")[0])


def test_buckets_and_sequences_are_refused():
    with pytest.raises(attn.ArgumentError, match="a cache of its own form"):
        attn.torch.bucketed(attn.compile(LATENT, B=2, Hq=4, Hkv=1, Dqk=40), {"Sq": [8], "Skv": [64]})


def test_rows_of_several_types_are_refused():
    f = attn.compile(PAGED.replace("pages = 12", "rows = fp8_ds_mla").replace("Dqk = 40", "Dqk = 576"))
    assert f.described.rows == "fp8_ds_mla"
    with pytest.raises(UnsupportedError, match="rows of keys in several types"):
        f(made(2, 4, 1, 576), made(12, 1, 8, 576))
