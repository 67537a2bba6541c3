"""attn.jax with several attentions in one spec, on the CPU, and what is lowered for GPUs."""

import re

import numpy as np

from jax_on_cpu import jax, on_cpu, with_64_bits  # noqa: F401

import jax.numpy as jnp  # noqa: E402

import attn  # noqa: E402
import attn.jax  # noqa: E402
from jax_dense import assert_close, inputs  # noqa: E402

BRANCHES = """attention d { dims B, Hq, Hkv, Sq, Skv, D; branch far; score score * 2; branch near; combine near - 2*far;
  outputs o, far_o, far_lse; }"""


def test_outputs_of_branches_have_the_order_of_o():
    f = attn.compile(BRANCHES)
    q, k, v, *_ = inputs(2, rows=5)

    def loss(layout):
        return lambda *x: jnp.sum(jnp.sin(f(*x, layout=layout)[0]))

    others = [x.swapaxes(1, 2) for x in (q, k, v)]
    o, far, lse = f(q, k, v)
    wide = [jnp.repeat(x, q.shape[1] // k.shape[1], 1) for x in (k, v)]
    scores = jnp.einsum("bhsd,bhtd->bhst", q, wide[0]) / np.sqrt(q.shape[-1])
    wanted, near = (jnp.einsum("bhst,bhtd->bhsd", jax.nn.softmax(x * scores), wide[1]) for x in (2, 1))
    assert_close((o, far, lse), (near - 2 * wanted, wanted, jax.nn.logsumexp(2 * scores, -1)))
    assert_close(jax.jit(lambda *x: f(*x, layout="bshd"))(*others), (o.swapaxes(1, 2), far.swapaxes(1, 2), lse))
    found = jax.grad(loss("bshd"), (0, 1, 2))(*others)
    assert_close([x.swapaxes(1, 2) for x in found], list(jax.grad(loss("bhsd"), (0, 1, 2))(q, k, v)))
    mapped = jax.vmap(lambda x: f(x, *others[1:], layout="bshd"))(jnp.stack([others[0]] * 2))
    assert_close([x[1] for x in mapped], [o.swapaxes(1, 2), far.swapaxes(1, 2), lse])


def test_plans_write_outputs_of_branches_row_major():
    f = attn.compile(BRANCHES, target="h200", layout="bshd", B=1, Hq=4, Hkv=2, Sq=128, Skv=256, D=64)
    q, k = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((1, 128, 4, 64), (1, 256, 2, 64)))
    lowered = jax.jit(lambda q, k: f(q, k, k)).trace(q, k).lower(lowering_platforms=("cuda",)).as_text()
    call = next(line for line in lowered.splitlines() if "custom_call @attn_plan" in line)
    results = re.findall(r"tensor<(\w+)>", call.rsplit("->", 1)[1])
    assert results[:3] == ["1x128x4x64xbf16", "1x4x128x64xbf16", "1x4x128xf32"], results
    assert [x.shape for x in jax.eval_shape(f, q, k, k)] == [(1, 128, 4, 64), (1, 128, 4, 64), (1, 4, 128)]
