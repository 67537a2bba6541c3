"""FlexAttention's functions of python/tests/mods by attn.jax on a GPU, beside the dense reference. Those that PyTorch's
tests have, unchanged: tensors that they capture become arrays."""

import concurrent.futures
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import pytest  # noqa: E402

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
try:
    jax.devices("cuda")
except RuntimeError:
    pytest.skip("JAX finds no CUDA GPU", allow_module_level=True)

import jax.numpy as jnp  # noqa: E402

import attn.jax  # noqa: E402
from attn.trace import trace  # noqa: E402
from mods import MODS, B, H, S  # noqa: E402
from jax_dense import difference, on_cpu, some  # noqa: E402
from test_jax_gpu import BACKWARD, FORWARD  # noqa: E402

D = 64


def tensors():
    return [some((B, H, S, D), seed) for seed in range(3)]


def function(name):
    """The gradients of a number, and o, of q, k and v; and the captured tensors that are learned."""
    score_mod, mask_mod = MODS[name]()
    traced = trace(score_mod, mask_mod, B=B, Hq=H, Hkv=H, Sq=S, Skv=S, Dqk=D, Dv=D, facts=False)
    f = attn.jax.flex.attention_of(attn.Spec(traced.text, traced=True))
    captured = {each: attn.jax.calls._numpy(each, x) for each, x in traced.tensors.items()}

    def run(q, k, v):
        o = f(q, k, v, **captured)
        weights = jnp.cos(jnp.arange(o.size, dtype=jnp.float32)).reshape(o.shape)
        return jnp.sum(o.astype(jnp.float32) * weights.astype(jnp.bfloat16).astype(jnp.float32)), o

    return jax.jit(jax.value_and_grad(run, (0, 1, 2), has_aux=True))


def computed(name):
    run, given = function(name), tensors()
    (_, o), gradients = run(*given)
    (_, wanted), others = run(*on_cpu(given))
    return [difference(x, y) for x, y in ((o, wanted), *zip(gradients, others))]


@pytest.fixture(scope="module")
def found():
    """The differences of all mods, whose plans are compiled by several processes at once."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return {name: pool.submit(computed, name) for name in MODS}


@pytest.mark.parametrize("name", MODS)
def test_mods(name, found):
    o, *gradients = found[name].result()
    assert o < FORWARD
    assert all(each < BACKWARD for each in gradients), gradients
