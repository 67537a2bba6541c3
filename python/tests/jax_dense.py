"""Dense attention in jax.numpy, beside which tests hold that of specs, and their inputs."""

import jax
import jax.numpy as jnp
import numpy as np

TEXT = """attention {name} {{
  dims B, Hq, Hkv = Hq // 2, Sq, Skv, D;
  learn slopes: f32[Hq];
  tensor doc: i32[B, Skv];
  score score + slopes[h] * (kv_idx - q_idx);
  mask q_idx >= kv_idx && doc[b, kv_idx] > 0;
  outputs o, lse;
}}
"""


def text(name):
    """The text of an attention with a learned tensor and a captured one."""
    return TEXT.format(name=name)


def inputs(*batches, rows=5, heads=4, depth=8, dtype=jnp.float64):
    """q, k, v [*batches, H, S, D], slopes [Hq] and doc [*batches, S], the same in each call."""
    generator = np.random.default_rng(3)

    def some(*shape):
        return jnp.asarray(generator.normal(size=shape), dtype)

    q = some(*batches, heads, rows, depth)
    k, v = (some(*batches, heads // 2, rows, depth) for _ in "kv")
    doc = np.ones((*batches, rows), np.int32)
    doc[..., 2] = 0
    return q, k, v, some(heads), jnp.asarray(doc)


def dense(q, k, v, slopes, doc):
    """o and lse of `text`, in jax.numpy."""
    k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = jnp.einsum("bhsd,bhtd->bhst", q, k) / np.sqrt(q.shape[-1])
    row, column = jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])[None]
    scores = scores + slopes[:, None, None] * (column - row)
    scores = jnp.where((row >= column) & (doc[:, None, None] > 0), scores, -jnp.inf)
    return jnp.einsum("bhst,bhtd->bhsd", jax.nn.softmax(scores), v), jax.nn.logsumexp(scores, -1)


def loss_of(function):
    """A number that depends on all elements of o and lse."""
    def loss(*args):
        o, lse = function(*args)
        return jnp.sum(jnp.sin(o)) + jnp.sum(lse**2)

    return loss


def assert_close(found, expected, tolerance=1e-9):
    """Every array of two trees."""
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))
    for x, y in pairs:
        assert x.shape == y.shape and x.dtype == y.dtype, (x.shape, x.dtype, y.shape, y.dtype)
        np.testing.assert_allclose(np.asarray(x, np.float64), np.asarray(y, np.float64), tolerance, tolerance)


def some(shape, seed, dtype=jnp.bfloat16, scale=1.0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) * scale, dtype)


def difference(found, wanted):
    """Relative L2 distance; infinity if either is not finite but where both are -inf, as lse of rows without keys."""
    x, y = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    hidden = np.isneginf(y) & np.isneginf(x)
    x, y = np.where(hidden, 0, x), np.where(hidden, 0, y)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return np.inf
    return float(np.linalg.norm(x - y) / max(np.linalg.norm(y), 1e-30))


def on_cpu(tree):
    return jax.tree.map(lambda x: jax.device_put(np.asarray(x), jax.devices("cpu")[0]), tree)
