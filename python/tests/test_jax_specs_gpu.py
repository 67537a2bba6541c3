"""Every spec of specs/ that attn.jax serves, on a GPU, beside the reference in double precision: outputs and gradients."""

import concurrent.futures
import os
import pathlib

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import pytest  # noqa: E402

jax = pytest.importorskip("jax")
try:
    jax.devices("cuda")
except RuntimeError:
    pytest.skip("JAX finds no CUDA GPU", allow_module_level=True)

import jax.numpy as jnp  # noqa: E402

import attn  # noqa: E402
import attn.jax  # noqa: E402
from jax_dense import difference, on_cpu, some  # noqa: E402
from jax_specs import PARAMETERS, inputs_of, sizes_of  # noqa: E402

FORWARD, BACKWARD = 6e-3, 1.5e-2
ALL = {path.stem for path in (pathlib.Path(__file__).parents[2] / "specs").glob("*.attn")}
# test_jax_gpu.py has those of 8-bit floats.
REFUSED = {"cache_fp8", "cache_int8", "chosen_fp8", "chosen_tokens", "mla_latent", "mxfp8"}
SPECS = sorted(name for name in ALL - REFUSED if not name.startswith("fp8_"))
WITHOUT_GRADIENTS = {"paged_decode"}  # pages have none


def loss_of(run, place):
    """A number whose gradient of o is the same everywhere, and random: sums of a regular one cancel."""
    def loss(qkv, learned, rest):
        o = jax.tree.leaves(run(qkv, {**learned, **rest}))[place].astype(jnp.float32)
        return jnp.sum(o * some(o.shape, 11).astype(jnp.float32))

    return loss


def differences(names, function, given):
    """Those of what a function computes here and on the CPU, by name."""
    run = jax.jit(function)
    found, wanted = (jax.tree.leaves(run(*each)) for each in (given, on_cpu(given)))
    assert all(x.dtype == y.dtype for x, y in zip(found, wanted))
    return {name: difference(x, y) for name, x, y in zip(names, found, wanted, strict=True)}


def computed(name):
    """The differences of outputs and of gradients."""
    described = attn.Spec.of(name).described()
    sizes = sizes_of(name, described)
    is_dense = not described.tables and not described.packed  # else the plan has the sizes that are bound
    bound = ("Hq", "Hkv") if is_dense else ("B", "Hq", "Hkv", "Sq", "Skv")
    f = attn.compile(name, **{dim: sizes[dim] for dim in bound}, **PARAMETERS.get(name, {}))
    described = f.described
    qkv, others = inputs_of(name, described)
    more = {"temperature": 0.7} if "temperature" in described.params else {}
    if described.facts["random"]:  # a key draws the same numbers everywhere
        more["key"] = jax.random.key(3)

    def run(qkv, others):
        return f(*qkv, **others, **more)

    outputs = differences(described.outputs, run, (qkv, others))
    if name in WITHOUT_GRADIENTS:
        return outputs, {}
    learned = {each: x for each, x in others.items() if each in described.learned}
    rest = {each: x for each, x in others.items() if each not in learned}
    gradient = jax.grad(loss_of(run, described.outputs.index("o")), (0, 1))
    return outputs, differences(("dq", "dk", "dv", *sorted(learned)), gradient, (qkv, learned, rest))


@pytest.fixture(scope="module")
def found():
    """The differences of all specs, whose plans are compiled by several processes at once."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return {name: pool.submit(computed, name) for name in SPECS}


@pytest.mark.parametrize("name", SPECS)
def test_spec(name, found):
    outputs, gradients = found[name].result()
    assert max(outputs.values()) < FORWARD, outputs
    assert max(gradients.values(), default=0) < BACKWARD, gradients


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused(name):
    f = attn.compile(name)
    q = some((1, f.described.sizes["Hq"], 1, f.described.sizes["Dqk"]), 1)
    with pytest.raises(attn.UnsupportedError, match="attn.jax"):
        f(q, q, q)
