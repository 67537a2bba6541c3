"""attn.jax.flex_attention and dot_product_attention on the CPU, beside functions of jax.numpy."""

import numpy as np
import pytest

from jax_on_cpu import jax, on_cpu, with_64_bits  # noqa: F401

import jax.numpy as jnp  # noqa: E402

import attn  # noqa: E402
import attn.jax  # noqa: E402
from jax_dense import assert_close, inputs  # noqa: E402

B, H, S = 2, 4, 6


def wave(*shape):
    return np.sin(np.arange(np.prod(shape)) * 1.7).reshape(shape)


def dense(q, k, v, score_mod=None, mask_mod=None):
    """The mods applied to all scores by broadcasting."""
    k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = jnp.einsum("bhsd,bhtd->bhst", q, k) / np.sqrt(q.shape[-1])
    places = jnp.meshgrid(*map(jnp.arange, scores.shape), indexing="ij")
    scores = scores if score_mod is None else score_mod(scores, *places)
    if mask_mod is not None:
        scores = jnp.where(mask_mod(*places), scores, -jnp.inf)
    return jnp.einsum("bhst,bhtd->bhsd", jax.nn.softmax(scores), v)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def relative(score, b, h, q_idx, kv_idx):
    return score + (q_idx - kv_idx) * 0.1


def alibi(score, b, h, q_idx, kv_idx):
    return score + (kv_idx - q_idx) * jnp.exp2(-((h + 1) * 8.0 / H))


def softcap(score, b, h, q_idx, kv_idx):
    return 5 * jnp.tanh(score / 5)


def selected(score, b, h, q_idx, kv_idx):
    return jax.lax.select(q_idx % 2 == 0, score, score * 0.5)


def divided(score, b, h, q_idx, kv_idx):
    apart, three = kv_idx - q_idx, jnp.full_like(q_idx, 3)
    small = (apart * 40).astype(jnp.int8)
    whole = jax.lax.div(apart, three) + jax.lax.div(three * 2, -1 - q_idx)
    whole = whole + jax.lax.div(small, jnp.full_like(small, -7))
    return score * jax.lax.div(score, score * 2 + 30) + 0.1 * (whole + jax.lax.rem(apart, three))


def piled(score, b, h, q_idx, kv_idx):
    x = jnp.where((q_idx - kv_idx) % 3 == 0, jnp.abs(score), jnp.minimum(score, 0.3))
    return jax.nn.silu(x) + jax.nn.sigmoid(x) * jnp.clip(score, -1, 1) - jnp.log1p(jnp.square(x))


def gelu(score, b, h, q_idx, kv_idx):
    return jax.nn.gelu(x=score) + jax.nn.gelu(score, False) - jax.nn.gelu(approximate=True, x=score * 0.5)


def window(b, h, q_idx, kv_idx):
    return jnp.logical_and(q_idx >= kv_idx, jnp.abs(q_idx - kv_idx) < 3)


def not_far(b, h, q_idx, kv_idx):
    return ~(jnp.maximum(q_idx, kv_idx) - jnp.minimum(q_idx, kv_idx) > 2) | (kv_idx == 0)


@pytest.mark.parametrize("score_mod, mask_mod", [
    (relative, None), (alibi, causal), (softcap, None), (selected, None), (divided, None), (piled, None), (gelu, None),
    (None, window), (None, not_far), (softcap, causal)])
def test_functions_of_numbers(score_mod, mask_mod):
    q, k, v, *_ = inputs(B, rows=S)

    def loss(function):
        return lambda q, k, v: jnp.sum(jnp.sin(function(q, k, v, score_mod, mask_mod)))

    mine = attn.jax.flex_attention
    assert_close(jax.jit(lambda *x: mine(*x, score_mod, mask_mod))(q, k, v), dense(q, k, v, score_mod, mask_mod))
    assert_close(*(jax.jit(jax.grad(loss(f), (0, 1, 2)))(q, k, v) for f in (mine, dense)))


def with_arrays(slopes, table, doc):
    def score_mod(score, b, h, q_idx, kv_idx):
        return score * slopes[h] + table[h, jnp.clip(kv_idx - q_idx, -2, 2) + 2]

    def mask_mod(b, h, q_idx, kv_idx):
        return doc[b, q_idx] == doc[b, kv_idx]

    return score_mod, mask_mod


def test_arrays_have_gradients_if_a_program_computes_them():
    q, k, v, *_ = inputs(B, rows=S)
    slopes, table = jnp.asarray(wave(H)), jnp.asarray(wave(H, 5))
    doc = jnp.asarray(np.arange(S)[None] // np.array([[2], [3]]))

    def loss(function):
        def run(q, slopes, table):
            return jnp.sum(jnp.sin(function(q, k, v, *with_arrays(jnp.exp(slopes), table * 2, doc))))
        return run

    mine = attn.jax.flex_attention
    wanted = jax.jit(jax.value_and_grad(loss(dense), (0, 1, 2)))
    assert_close(jax.jit(jax.value_and_grad(loss(mine), (0, 1, 2)))(q, slopes, table), wanted(q, slopes, table))
    assert_close(jax.grad(loss(mine), (0, 1, 2))(q, slopes, table), wanted(q, slopes, table)[1])
    mapped = jax.jit(jax.vmap(jax.grad(loss(mine), 1), (None, 0, None)))(q, jnp.stack([slopes, slopes + 1]), table)
    assert_close(mapped[1], wanted(q, slopes + 1, table)[1][1])


def test_lse_order_of_dimensions_and_dropout():
    q, k, v, *_ = inputs(B, rows=S)
    o, lse = attn.jax.flex_attention(q, k, v, None, causal, return_lse=True, scale=0.5)
    swapped = [x.swapaxes(1, 2) for x in (q, k, v)]
    other, same = attn.jax.flex_attention(*swapped, None, causal, return_lse=True, scale=0.5, layout="bshd")
    assert_close((other.swapaxes(1, 2), same), (o, lse))
    drop = [attn.jax.flex_attention(q, k, v, dropout=0.5, dropout_key=jax.random.key(seed)) for seed in (1, 1, 2)]
    assert jnp.array_equal(drop[0], drop[1]) and not jnp.array_equal(drop[0], drop[2])


@pytest.mark.parametrize("mod, message", [
    (lambda score, b, h, q_idx, kv_idx: score if q_idx > 0 else 0, "if"),
    (lambda score, b, h, q_idx, kv_idx: jnp.cumsum(score), "`cumsum` needs more than one score"),
    (lambda score, b, h, q_idx, kv_idx: jax.random.normal(jax.random.key(0)) + jnp.fft.fft(score), "`fft` cannot"),
    (lambda score, b, h, q_idx, kv_idx: jnp.stack([score, score]), "`stack` cannot be traced")])
def test_what_cannot_be_traced(mod, message):
    q, k, v, *_ = inputs(1)
    with pytest.raises(attn.TraceError, match=message):
        attn.jax.flex_attention(q, k, v, mod)


# --- jax.nn.dot_product_attention


CASES = {
    "plain": {}, "causal": {"is_causal": True}, "scale": {"scale": 0.3}, "window": {"local_window_size": (2, 1)},
    "both_sides": {"local_window_size": 1}, "bias": {"bias": wave(B, H, S, S)}, "bias_of_heads": {"bias": wave(1, H, S, S)},
    "bias_of_keys": {"bias": wave(B, 1, 1, S)}, "mask": {"mask": wave(1, 1, S, S) > -0.7},
    "mask_and_causal": {"mask": (wave(B, H, 1, S) > -0.95) | (np.arange(S) == 0), "is_causal": True, "bias": wave(1, 1, S, S)},
    "lengths": {"key_value_seq_lengths": np.array([3, 6], np.int32)},
}


@pytest.mark.parametrize("name", CASES)
def test_dot_product_attention(name):
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in inputs(B, rows=S)[:3])
    mine, theirs = attn.jax.dot_product_attention, jax.nn.dot_product_attention
    options = CASES[name]
    assert_close(mine(q, k, v, **options), theirs(q, k, v, **options), 1e-6)
    bias = options.get("bias")

    def loss(function):
        def run(q, k, v, bias):
            return jnp.sum(jnp.sin(function(q, k, v, **{**options, **({} if bias is None else {"bias": bias})})))
        return jax.jit(jax.grad(run, (0, 1, 2) if bias is None else (0, 1, 2, 3)))

    assert_close(*(loss(f)(q, k, v, bias) for f in (mine, theirs)), 1e-6)


def test_windows_are_integers_of_any_kind():
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in inputs(B, rows=S)[:3])
    of = [attn.jax.dot_product_attention(q, k, v, local_window_size=size)
          for size in (2, np.int32(2), jnp.array(2), (2, jnp.array(2)), jnp.array([2, 2]))]
    assert all(jnp.array_equal(of[0], other) for other in of[1:])


def test_dot_product_attention_without_batch_and_with_residual():
    q, k, v = (jnp.swapaxes(x, 1, 2)[0] for x in inputs(1, rows=S)[:3])
    found = attn.jax.dot_product_attention(q, k, v, return_residual=True)
    wanted = jax.nn.dot_product_attention(q, k, v, return_residual=True)
    assert_close(found[0], wanted[0], 1e-6)
    np.testing.assert_allclose(found[1], wanted[1], 1e-6)


@pytest.mark.parametrize("options, message", [
    ({"implementation": "xla"}, "has no `implementation`"), ({"bias": wave(3, 1, 1, S)}, "cannot be broadcast"),
    ({"mask": wave(1, 1, S, S)}, "must be of booleans"), ({"local_window_size": (-1, 2)}, "must not be negative"),
    ({"bias": np.ones((1, 1, S, S), np.int32)}, "it must be of floats"), ({"block_mask": 1}, "block_mask")])
def test_wrong_arguments_of_dot_product_attention(options, message):
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in inputs(B, rows=S)[:3])
    with pytest.raises(attn.ArgumentError, match=message):
        attn.jax.dot_product_attention(q, k, v, **options)
