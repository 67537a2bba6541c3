"""Keys and values of 8 bits beside queries of 16, on the CPU: what the reference computes, and what is refused."""

import math
import unittest

import torch

import attn
import attn.torch
from attn.torch.varlen_arguments import check_q_and_caches
from attn.torch.varlen_kernels import Asked

B, HQ, HKV, SQ, SKV, D = 2, 4, 2, 5, 37, 16

SPEC = f"""attention cached {{
  dims    B = {B}, Hq = {HQ}, Hkv = {HKV}, Sq = {SQ}, Skv = {SKV}, D = {D};
  dtype   bf16, k: KEYS, v: VALUES;
  quantize kv(WAY);
  mask    q_idx + 32 >= kv_idx;
}}"""
SHAPES = {"tensor": (1,), "head": (HKV,), "batch_head": (B, HKV), "token": (B, 1, SKV), "token_head": (B, HKV, SKV)}


def spec(way="head", k="e4m3", v="i8"):
    return SPEC.replace("KEYS", k).replace("VALUES", v).replace("WAY", way)


def rounded(x, dtype):
    return (32 * x).round().clamp(-127, 127).to(dtype) if dtype == torch.int8 else x.to(dtype)


def tensors(k=torch.float8_e4m3fn, v=torch.int8, q=torch.bfloat16):
    torch.manual_seed(5)
    # [B, H, S, D], with the rows before the heads in memory.
    made = [torch.randn(B, rows, heads, D).transpose(1, 2) for heads, rows in ((HQ, SQ), (HKV, SKV), (HKV, SKV))]
    return [rounded(x, dtype) for x, dtype in zip(made, (q, k, v))]


def scale_of(way, scale):
    if way == "head":
        return scale.reshape(1, HKV, 1, 1)
    return scale[..., None, None] if way == "batch_head" else scale[..., None] if scale.dim() == 3 else scale


def expected(way, q, k, v, k_scale, v_scale):
    k, v = (
        (x.double() * scale_of(way, scale.double())).repeat_interleave(HQ // HKV, dim=1)
        for x, scale in ((k, k_scale), (v, v_scale))
    )
    s = q.double() @ k.transpose(2, 3) / math.sqrt(D)
    hidden = torch.arange(SQ)[:, None] + 32 < torch.arange(SKV)
    return s.masked_fill(hidden, -math.inf).softmax(-1) @ v


class Cache(unittest.TestCase):
    def test_each_way(self):
        for way, shape in SHAPES.items():
            with self.subTest(way=way):
                q, k, v = tensors()
                k_scale, v_scale = torch.rand(shape) + 0.5, (torch.rand(shape) + 0.5) / 32
                o = attn.compile(spec(way))(q, k, v, k_scale=k_scale, v_scale=v_scale)
                self.assertEqual(o.dtype, torch.bfloat16)
                found = expected(way, q, k, v, k_scale, v_scale)
                self.assertLess((o.double() - found).norm() / found.norm(), 4e-3)

    def test_types(self):
        f = attn.compile(spec())
        scales = {"k_scale": torch.ones(HKV), "v_scale": torch.ones(HKV)}
        with self.assertRaisesRegex(attn.BindingError, "v is torch.float8_e4m3fn, but `cached` has i8: torch.int8"):
            f(*tensors(v=torch.float8_e4m3fn), **scales)
        with self.assertRaisesRegex(attn.BindingError, "q is torch.float8_e4m3fn; beside keys and values of 8 bits"):
            f(*tensors(q=torch.float8_e4m3fn), **scales)
        self.assertEqual(f(*tensors(q=torch.float16), **scales).dtype, torch.float16)

    def test_has_no_gradients(self):
        q, k, v = tensors()
        scales = {"k_scale": torch.ones(HKV), "v_scale": torch.ones(HKV)}
        f = attn.compile(spec())
        with self.assertRaisesRegex(attn.UnsupportedError, "which have no gradients"):
            f(q.requires_grad_(), k, v, **scales)
        with torch.no_grad():
            f(q, k, v, **scales)

    def test_scales_of_keys_in_pages_are_refused(self):
        paged = spec("token").replace("quantize", "layout k: paged(page = 16), v: paged(page = 16); quantize")
        with self.assertRaisesRegex(attn.UnsupportedError, "scales of each key beside pages"):
            attn.compile(paged)(*tensors())

    def test_pools_have_the_types_of_the_spec(self):
        asked = Asked(spec(), (None, None), None, {})
        self.assertEqual(asked.cache, {"k": "e4m3", "v": "i8"})
        q = torch.zeros(3, HQ, D, dtype=torch.bfloat16)
        pool = torch.zeros(4, 16, HKV, D)
        check_q_and_caches(q, pool.to(torch.float8_e4m3fn), pool.to(torch.int8), asked.cache)
        with self.assertRaisesRegex(attn.BindingError, "v_cache is torch.float8_e4m3fn, but the spec has i8"):
            check_q_and_caches(q, pool.to(torch.float8_e4m3fn), pool.to(torch.float8_e4m3fn), asked.cache)
        with self.assertRaisesRegex(attn.BindingError, "they must have one type"):
            check_q_and_caches(q, pool.to(torch.float8_e4m3fn), pool.to(torch.bfloat16), {})


if __name__ == "__main__":
    unittest.main()
