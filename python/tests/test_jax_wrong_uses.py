"""What attn.jax says about mistakes, on the CPU: the class of the error, and a part of its text."""

import re

import numpy as np
import pytest

from jax_on_cpu import jax, on_cpu  # noqa: F401

import jax.numpy as jnp  # noqa: E402

import attn  # noqa: E402
import attn.jax  # noqa: E402
from attn import ArgumentError, BindingError, TraceError, UnsupportedError  # noqa: E402

CAUSAL = "attention c { dims B, Hq, Hkv = Hq // 2, Sq, Skv = Sq, D; mask q_idx >= kv_idx; outputs o, lse, max; }"
LEARNED = """attention l { dims B, Hq, Sq, Skv, D; learn slopes: f32[Hq]; tensor doc: i32[B, Skv]; param cap: f32;
  score cap * tanh(score / cap) * slopes[h]; mask doc[b, kv_idx] > 0; }"""
DROPOUT = "attention d { dims B, Hq, Sq, D; dropout 0.1; }"
PACKED = """attention p { dims B = 2, Hq = 2, Hkv = 2, Sq = 4, Skv = 4, D = 8;
  layout q: thd, k: thd, v: thd, o: thd; }"""
BLOCKS = "attention m { dims B, Hq, Sq, D; dtype e4m3; quantize mxfp8; }"
CACHE = "attention k { dims B, Hq, Sq, D; dtype bf16, k: e4m3, v: e4m3; quantize kv(head); }"
SINK = "attention s { dims B, Hq, Sq, Skv, D; learn sinks: f32[Hq]; sink sinks[h]; outputs o, lse; }"

USES = {}


def use(error, message):
    """Decorates a wrong use: a function of nothing."""
    def register(function):
        USES[function.__name__] = function, error, message
        return function
    return register


def f(text=CAUSAL, **sizes):
    return attn.compile(text, **sizes)


def some(*shape, dtype=jnp.float32):
    return jnp.ones(shape, dtype)


def qkv(heads=4, key_heads=2, rows=4, depth=8):
    return some(1, heads, rows, depth), some(1, key_heads, rows, depth), some(1, key_heads, rows, depth)


def learned(**others):
    q = some(1, 2, 4, 8)
    given = {"slopes": some(2), "doc": some(1, 4, dtype=jnp.int32), "cap": 2.0, **others}
    return f(LEARNED)(q, q, q, **{name: x for name, x in given.items() if x is not None})


# --- q, k and v


@use(BindingError, "v must be given")
def no_v():
    f()(*qkv()[:2])


@use(BindingError, "4 tensors without names were given")
def four_tensors():
    f()(*qkv(), some(1))


@use(BindingError, "q was given twice")
def q_twice():
    f()(*qkv(), q=some(1))


@use(BindingError, "q has shape [4, 4, 8]; it must be [B, Hq, Sq, D]")
def no_batch():
    f()(qkv()[0][0], *qkv()[1:])


@use(BindingError, "q, k and v must have the same dtype, not q bfloat16, k float32, v float32")
def mixed_types():
    f()(qkv()[0].astype(jnp.bfloat16), *qkv()[1:])


@use(BindingError, "q, k and v are int32; they must be of 16, 32 or 64 bit floats")
def integers():
    f()(*(x.astype(jnp.int32) for x in qkv()))


@use(BindingError, "q, k and v are complex64")
def complex_numbers():
    f()(*(x.astype(jnp.complex64) for x in qkv()))


@use(BindingError, "q, k and v are float8_e4m3fn, but `c` has no scales for 8 bits")
def eight_bits():
    f()(*(x.astype(jnp.float8_e4m3fn) for x in qkv()))


@use(BindingError, "k is a list, not an array of JAX")
def a_list():
    f()(qkv()[0], [1.0], qkv()[2])


@use(BindingError, "q has 4 heads and k 4, but in `c` 2 heads share one")
def group():
    f()(*qkv(4, 4))


@use(BindingError, "q has 3 heads, which is not a multiple of the 2 heads of k and v")
def heads():
    f()(*qkv(3, 2))


@use(BindingError, "q has 4 rows and k 2, but in `d` Skv is Sq: are they [B, S, H, D]?")
def other_order():
    q, k = some(1, 8, 4, 8), some(1, 8, 2, 8)
    f(DROPOUT)(q, k, k, seed=1)


@use(BindingError, "q has rows of 8 elements, but k of 16: D must be the same")
def depth():
    f()(qkv()[0], *qkv(depth=16)[1:])


@use(BindingError, "k has shape [1, 2, 4, 8] and v [1, 2, 5, 8]")
def rows_of_v():
    f()(*qkv()[:2], qkv(rows=5)[2])


@use(BindingError, "q has 2 batches, but k and v have 1: expand k and v")
def batches():
    f()(some(2, 4, 4, 8), *qkv()[1:])


@use(ArgumentError, "layout is 'sbhd'; it must be \"bhsd\"")
def layout():
    f()(*qkv(), layout="sbhd")


@use(ArgumentError, "layout is 'sbhd'")
def layout_of_flex():
    attn.jax.flex_attention(*qkv(), layout="sbhd")


# --- captured tensors, params, scales


@use(BindingError, "`l` has no input `slope`")
def unknown_tensor():
    learned(slope=some(2))


@use(BindingError, "slopes must be given")
def missing_tensor():
    learned(slopes=None)


@use(BindingError, "slopes and cap must be given")
def missing_two():
    learned(slopes=None, cap=None)


@use(BindingError, "slopes has shape [3], but the spec declares [Hq], here [2]")
def shape_of_tensor():
    learned(slopes=some(3))


@use(BindingError, "doc has shape [4], but the spec declares [B, Skv], here [1, 4]")
def rank_of_tensor():
    learned(doc=some(4, dtype=jnp.int32))


@use(BindingError, "doc is of float32, but the spec declares i32")
def type_of_integers():
    learned(doc=some(1, 4))


@use(BindingError, "slopes is of int32, but the spec declares f32")
def type_of_floats():
    learned(slopes=some(2, dtype=jnp.int32))


@use(BindingError, "slopes is a number, but the spec declares a tensor of f32")
def number_for_tensor():
    learned(slopes=1.0)


@use(BindingError, "slopes has dtype <U1; it must be of floats")
def text_for_tensor():
    learned(slopes=np.array(["x", "y"]))


@use(BindingError, "cap is a param: it must be a number, not str")
def text_for_param():
    learned(cap="x")


@use(BindingError, "cap is a param: a number of Python, and not one that a traced program computes")
def traced_param():
    jax.jit(lambda cap: learned(cap=cap))(2.0)


@use(BindingError, "cap is a param: a number of Python")
def gradient_of_param():
    jax.grad(lambda cap: jnp.sum(learned(cap=cap)))(2.0)


@use(BindingError, "ids has integers of more than 32 bits, which JAX would cut")
def wide_integers():
    text = "attention w { dims B, Hq, Sq, D; tensor ids: i64[Sq]; mask ids[q_idx] > 2; }"
    q = some(1, 2, 4, 8)
    f(text)(q, q, q, ids=np.full(4, 1 << 40))


@use(BindingError, "descale_q is float32 of shape [2]; it must be float32 of shape [1]")
def shape_of_scale():
    q = some(1, 2, 4, 16, dtype=jnp.float8_e4m3fn)
    f("fp8_causal", Hq=2, Hkv=2)(q, q, q, descale_q=some(2))


@use(BindingError, "q, k and v are bfloat16, but `fp8_causal` has e4m3")
def reals_for_8_bits():
    q = some(1, 2, 4, 16, dtype=jnp.bfloat16)
    f("fp8_causal", Hq=2, Hkv=2)(q, q, q)


@use(UnsupportedError, "`fp8_causal` is of 8 bits, which has no backward in attn.jax")
def gradient_of_8_bits():
    q, g = some(1, 2, 4, 16, dtype=jnp.float8_e4m3fn), f("fp8_causal", Hq=2, Hkv=2)
    jax.vjp(lambda q: g(q, q, q)[1], q)[1](some(1, 2, 4))


@use(BindingError, "`fp8_training` has no input `amax_dq`")
def amax_of_a_backward():
    q = some(1, 2, 4, 16, dtype=jnp.float8_e4m3fn)
    one = {f"descale_{name}": some(1) for name in ("q", "k", "v", "do")}
    f("fp8_training", Hq=2, Hkv=2)(q, q, q, amax_dq=some(1), **one)


@use(UnsupportedError, "`m` has scales of blocks (`quantize mxfp8`), which attn.jax does not take yet")
def scales_of_blocks():
    q = some(1, 2, 32, 32, dtype=jnp.float8_e4m3fn)
    f(BLOCKS)(q, q, q)


@use(UnsupportedError, "`k` has keys and values of 8 bits beside queries of 16, which attn.jax does not take yet")
def a_cache():
    q, one = some(1, 2, 32, 32), some(2)
    f(CACHE)(q, q.astype(jnp.float8_e4m3fn), q.astype(jnp.float8_e4m3fn), k_scale=one, v_scale=one)


# --- dropout


@use(BindingError, "`d` has random dropout, and nothing says what it draws by")
def no_key():
    q = some(1, 2, 4, 8)
    f(DROPOUT)(q, q, q)


@use(BindingError, "a key and a seed were both given")
def key_and_seed():
    q = some(1, 2, 4, 8)
    f(DROPOUT)(q, q, q, key=jax.random.key(0), seed=1)


@use(BindingError, "`c` has no random dropout, and a key was given")
def key_without_dropout():
    f()(*qkv(), key=jax.random.key(0))


@use(BindingError, "seed must be one integer")
def seed():
    q = some(1, 2, 4, 8)
    f(DROPOUT)(q, q, q, seed=1.5)


@use(BindingError, "no random dropout, and a key was given")
def key_of_flex():
    attn.jax.flex_attention(*qkv(), dropout_key=jax.random.key(0))


# --- rows that other tensors locate


def packed(q=None, **others):
    q = some(6, 2, 8) if q is None else q
    offsets = jnp.array([0, 3, 6], jnp.int32)
    return f(PACKED)(q, q, q, **{"cu_seqlens_q": offsets, "cu_seqlens_kv": offsets, **others})


@use(BindingError, "q has shape [1, 2, 4, 8]; it must be [T, H, D]")
def batches_of_packed():
    packed(some(1, 2, 4, 8))


@use(ArgumentError, "`p` has packed sequences or pages, to which layout= does not apply")
def layout_of_packed():
    packed(layout="bshd")


@use(BindingError, "cu_seqlens_q falls from 5 to 3, at [2]")
def falling_offsets():
    packed(cu_seqlens_q=jnp.array([0, 5, 3], jnp.int32))


@use(BindingError, "cu_seqlens_kv ends at 9, but k has 6 rows")
def long_offsets():
    packed(cu_seqlens_kv=jnp.array([0, 5, 9], jnp.int32))


@use(BindingError, "cu_seqlens_q has a sequence of 5 rows, but Sq is 4")
def long_sequence():
    packed(cu_seqlens_q=jnp.array([0, 5, 6], jnp.int32))


# --- derivatives, and nothing


@use(UnsupportedError, "attention has first derivatives in reverse mode alone")
def second_derivative():
    q, k, v = qkv()
    jax.grad(lambda q: jnp.sum(jax.grad(lambda q: jnp.sum(f()(q, k, v)[0] ** 2))(q)))(q)


@use(UnsupportedError, "max has no gradient, and the backward reached it: only o and lse have one")
def gradient_of_max():
    q, k, v = qkv()
    jax.grad(lambda q: jnp.sum(f()(q, k, v)[2]))(q)


@use(UnsupportedError, "without a key, lse and its like are those of the sink")
def sink_without_keys():
    q, k = some(1, 2, 4, 8), some(1, 2, 0, 8)
    f(SINK)(q, k, k, sinks=some(2))


# --- functions, and jax.nn's call


@use(BindingError, "query is a ndarray, not an array of JAX")
def array_of_numpy():
    attn.jax.flex_attention(np.ones((1, 2, 4, 8), np.float32), *qkv()[1:])


@use(ArgumentError, "flex_attention has no argument `block_mask`")
def block_mask():
    attn.jax.flex_attention(*qkv(), block_mask=None)


@use(TraceError, "a mask_mod returns a condition, this one returns an integer")
def mask_that_is_no_condition():
    attn.jax.flex_attention(*qkv(), None, lambda b, h, q_idx, kv_idx: q_idx - kv_idx)


@use(TraceError, "`sort` needs more than one score")
def function_of_rows():
    attn.jax.flex_attention(*qkv(), lambda score, b, h, q_idx, kv_idx: jnp.sort(score))


@use(TraceError, "the mod failed while it was traced")
def number_of_arguments_inside():
    attn.jax.flex_attention(*qkv(), lambda score, b, h, q_idx, kv_idx: jnp.nothing(score))


@use(BindingError, "bias has shape [3, 1, 1, 4], which cannot be broadcast to [1, 4, 4, 4]: [B, N, T, S]")
def shape_of_bias():
    q = some(1, 4, 4, 8)
    attn.jax.dot_product_attention(q, q, q, some(3, 1, 1, 4))


def of_mod(score_mod, mask_mod=None):
    return attn.jax.flex_attention(*qkv(), score_mod, mask_mod)


@use(TraceError, "write `jnp.where(condition, a, b)`")
def condition_of_python():
    of_mod(lambda score, b, h, q_idx, kv_idx: score if q_idx > 1 else 0)


@use(TraceError, "pass it as mask_mod, or write `jnp.where(condition, score, -float('inf'))`")
def score_that_is_a_condition():
    of_mod(lambda score, b, h, q_idx, kv_idx: q_idx > kv_idx)


@use(TraceError, "`x.astype(jnp.float32)`, and `jnp.exp(x)` for `math.exp(x)`")
def float_of_python():
    of_mod(lambda score, b, h, q_idx, kv_idx: score + float(q_idx))


@use(TraceError, "test_jax_wrong_uses.py")
def float_of_jax_is_located():
    of_mod(lambda score, b, h, q_idx, kv_idx: score + jnp.float32(q_idx))


@use(TraceError, "`x.astype(jnp.float32)` is written for `jnp.float32(x)`")
def float_of_jax():
    of_mod(lambda score, b, h, q_idx, kv_idx: score + jnp.float32(q_idx))


@use(TraceError, "JAX counts a negative index from the end, a spec does not")
def index_from_the_end():
    table = some(4)
    of_mod(lambda score, b, h, q_idx, kv_idx: score + table[q_idx - kv_idx])


@use(TraceError, "guard the read with `jnp.where`, or use `jnp.clip`")
def index_outside():
    table = some(4)
    of_mod(lambda score, b, h, q_idx, kv_idx: score + table[q_idx + kv_idx])


@use(TraceError, "`//` in place of `/`, or `.astype(jnp.int32)`")
def index_of_reals():
    table = some(4)
    of_mod(lambda score, b, h, q_idx, kv_idx: score + table[q_idx / 2])


@use(BindingError, "scale is computed by a traced program; it must be a number of Python\n"
                   "  note: a shape gives one: scale=q.shape[-1] ** -0.5")
def traced_scale():
    jax.jit(lambda scale: attn.jax.flex_attention(*qkv(), scale=scale))(0.5)


@use(BindingError, "scale is computed by a traced program")
def traced_scale_of_dot_product():
    q = some(1, 4, 4, 8)
    jax.jit(lambda scale: attn.jax.dot_product_attention(q, q, q, scale=scale))(0.5)


@use(BindingError, "scale is 'x'; it must be a number")
def text_for_scale():
    attn.jax.flex_attention(*qkv(), scale="x")


@use(BindingError, "dropout is computed by a traced program")
def traced_dropout():
    jax.jit(lambda p: attn.jax.flex_attention(*qkv(), dropout=p, dropout_key=jax.random.key(0)))(0.5)


@use(BindingError, "local_window_size is [1, 2, 3]; it must be an integer of Python, or two")
def window_of_three():
    q = some(1, 4, 4, 8)
    attn.jax.dot_product_attention(q, q, q, local_window_size=[1, 2, 3])


@use(BindingError, "local_window_size=(left, right) counts keys before and after")
def traced_window():
    q = some(1, 4, 4, 8)
    jax.jit(lambda size: attn.jax.dot_product_attention(q, q, q, local_window_size=size))(2)


@pytest.mark.parametrize("name", USES)
def test_what_is_said(name):
    function, error, message = USES[name]
    with pytest.raises(Exception) as caught:
        jax.block_until_ready(function())
    found = attn.jax.error_of(caught.value) or caught.value
    assert isinstance(found, error), f"{type(found)}: {found}"
    assert re.search(re.escape(message), str(found)), str(found)


def test_all_are_here():
    assert len(USES) >= 62
