"""Masks and sinks of `attn.torch.hugging_face`, without Transformers."""

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import create_mask  # noqa: E402

import attn.torch  # noqa: E402
from attn.torch import hugging_face  # noqa: E402


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def everything(b, h, q_idx, kv_idx):
    return kv_idx >= 0


def shown(rows, keys, **options):
    """What the mask of one sequence shows: [rows, keys]."""
    made = hugging_face.mask(1, q_length=rows, kv_length=keys, **options)
    return create_mask(made.mask_mod, 1, 1, rows, keys, device="cpu")[0, 0]


def wanted(rows, keys, function, q_offset=0, kv_offset=0, padding=None):
    row, column = torch.arange(rows)[:, None] + q_offset, torch.arange(keys) + kv_offset
    found = function(0, 0, row, column).expand(rows, keys)
    return found if padding is None else found & padding[column]


@pytest.mark.parametrize("function", [None, causal, lambda b, h, i, j: (i >= j) & (i // 3 == j // 3)])
@pytest.mark.parametrize("q_offset, kv_offset", [(0, 0), (8, 8), (3, 0), (5, 4)])
@pytest.mark.parametrize("rows", [4, 3])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_offsets(function, q_offset, kv_offset, rows, as_tensor):
    given = torch.tensor(q_offset) if as_tensor else q_offset
    found = shown(rows, 4, mask_function=function, q_offset=given, kv_offset=kv_offset)
    assert torch.equal(found, wanted(rows, 4, function or causal, q_offset, kv_offset))


@pytest.mark.parametrize("rows", [6, 2])
@pytest.mark.parametrize("tokens", [[1, 1, 1, 1], [0, 1, 1, 1], [1] * 6, [1] * 7, [0] + [1] * 6])
@pytest.mark.parametrize("kv_offset", [0, 1])
def test_keys_that_the_padding_mask_does_not_say_are_hidden(rows, tokens, kv_offset):
    padding = torch.tensor([tokens])
    found = shown(rows, 6, mask_function=everything, attention_mask=padding, kv_offset=kv_offset)
    whole = torch.nn.functional.pad(padding[0], (0, 7)).bool()
    assert torch.equal(found, wanted(rows, 6, everything, 0, kv_offset, whole))


def test_sinks_round_once():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 64, 16, generator=generator).bfloat16() for _ in range(3))
    sinks = torch.randn(2, generator=generator)
    layer = torch.nn.Module().eval()
    found, _ = hugging_face.attention(layer, q, k, v, None, is_causal=False, s_aux=sinks)
    o, lse = attn.torch.flex_attention(q, k, v, return_lse=True)
    exact = o.double() * torch.sigmoid(lse.double() - sinks[:, None])[..., None]
    error = (found.transpose(1, 2).double() - exact).abs() / exact.abs().clamp(min=1e-6)
    assert error.max() <= 1.001 * 2 ** -8  # half of the distance between bf16 numbers
