"""What attn.torch.append and merge refuse. test_operations_gpu.py has what they compute."""

import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402

K = torch.zeros(3, 2, 64, dtype=torch.bfloat16)
CACHE = torch.zeros(4, 16, 2, 64, dtype=torch.bfloat16)
SLOTS = torch.zeros(3, dtype=torch.int64)
TABLE = torch.zeros(8, 16)
ROTARY = {"cos": TABLE, "sin": TABLE, "positions": SLOTS}
O, LSE = torch.zeros(3, 2, 64), torch.zeros(3, 2)
ONE = torch.ones(1)


@pytest.mark.parametrize("arguments, options, text", [
    ((None, None, None, None, None), {}, "k, v and q are all None"),
    ((K, None, None, None, SLOTS), {}, "k and k_cache must be given together"),
    ((K, None, CACHE, CACHE, SLOTS), {}, "v and v_cache must be given together"),
    ((K[0], None, CACHE, None, SLOTS), {}, r"k has shape \[2, 64\], but must have \[2, heads, width\]"),
    ((K, K[:2], CACHE, CACHE, SLOTS), {}, r"v has shape \[2, 2, 64\], but must have \[3, heads, width\] beside k"),
    ((K, None, CACHE[0], None, SLOTS), {}, r"k_cache has shape .* but must have \[pages, page_size, heads, width\]"),
    ((K, None, CACHE[..., :32], None, SLOTS), {}, r"k_cache has shape \[4, 16, 2, 32\], but must have \[4,"),
    ((K, K, CACHE, CACHE[:3], SLOTS), {}, r"v_cache has shape \[3, 16, 2, 64\], but must have \[4, 16, 2, 64\]"),
    ((K, None, CACHE, None, SLOTS[:2]), {}, r"slot_mapping has shape \[2\], but must have \[3\]"),
    ((K, None, CACHE, None, SLOTS.int()), {}, "slot_mapping has dtype torch.int32, but must have torch.int64"),
    ((K, None, CACHE, None, torch.zeros(6, dtype=torch.int64)[::2]), {}, "slot_mapping has a stride of 2"),
    ((K.transpose(1, 2), None, CACHE.transpose(2, 3), None, SLOTS), {}, "k has strides .* must be contiguous"),
    ((K.to(torch.complex64), None, CACHE, None, SLOTS), {}, "k has dtype torch.complex64"),
    ((K, None, CACHE, None, SLOTS), {"cos": TABLE}, "cos, sin and positions must be given together"),
    ((K, None, CACHE, None, SLOTS), ROTARY | {"sin": TABLE[:, :8]}, r"sin has shape \[8, 8\], but must have \[8, 16\]"),
    ((K, None, CACHE, None, SLOTS), ROTARY | {"sin": TABLE.half()}, "sin has dtype torch.float16"),
    ((K, None, CACHE, None, SLOTS), ROTARY | {"positions": LSE[:, 0]}, "positions has"),
    ((K, None, CACHE, None, SLOTS), {"descale_k": torch.ones(2)}, "descale_k has 2 elements, but must have one"),
    ((K, None, CACHE, None, SLOTS), {"descale_v": ONE}, "descale_v is given without v"),
    ((K, None, CACHE, None, SLOTS), {"outside": ONE}, "outside has dtype torch.float32, but must have torch.int32"),
    ((K, None, CACHE, None, SLOTS), {}, "k is on cpu, but must be on a CUDA device"),
    ((K.clone().requires_grad_(), None, CACHE, None, SLOTS), {}, r"k requires a gradient.*torch.no_grad\(\)"),
    ((K, None, CACHE.to("meta"), None, SLOTS), {}, "k_cache is on meta, but k on cpu"),
])
def test_append_names_what_does_not_fit(arguments, options, text):
    with pytest.raises(attn.BindingError, match=text):
        attn.torch.append(*arguments, **options)


@pytest.mark.parametrize("arguments, options, text", [
    ((O, LSE, O), {}, "o_b and lse_b must be given together"),
    ((O[0], LSE), {}, r"o_a has shape \[2, 64\], but must have \[T, H, D\] or \[N, T, H, D\]"),
    ((O, LSE.T), {}, r"lse_a has shape \[2, 3\], but must have \[3, 2\]"),
    ((O, LSE), {"heads_first": True}, r"lse_a has shape \[3, 2\], but must have \[2, 3\]"),
    ((O[None], LSE), {}, r"lse_a has shape \[3, 2\] beside o_a of \[1, 3, 2, 64\]"),
    ((O, LSE, O[:2], LSE[:2]), {}, r"o_b has shape \[2, 2, 64\], but must have \[3, 2, 64\]"),
    ((O, LSE.double()), {}, "lse_a has dtype torch.float64, but must have torch.float32"),
    ((O, LSE), {"out": O[..., :32]}, r"out has shape \[3, 2, 32\], but must have \[3, 2, 64\]"),
    ((O, LSE), {"lse_out": LSE.T}, r"lse_out has shape \[2, 3\], but must have \[3, 2\]"),
    ((O[None][:0], LSE[None][:0]), {}, "o_a has no results"),
    ((O.transpose(1, 2), torch.zeros(3, 64)), {}, "o_a has strides .* must be contiguous"),
    ((O, LSE), {}, "o_a is on cpu, but must be on a CUDA device"),
])
def test_merge_names_what_does_not_fit(arguments, options, text):
    with pytest.raises(attn.BindingError, match=text):
        attn.torch.merge(*arguments, **options)
