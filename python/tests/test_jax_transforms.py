"""attn.jax on the CPU under JAX's transformations, beside a dense attention in jax.numpy, in float64. Eight devices."""

import gc

import numpy as np
import pytest

from jax_on_cpu import jax, on_cpu, with_64_bits  # noqa: F401

import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import attn  # noqa: E402
import attn.jax  # noqa: E402
from attn.arguments import extent  # noqa: E402
from jax_dense import assert_close, dense, inputs, loss_of, text  # noqa: E402

ALL = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def f():
    return attn.compile(text("transformed"))


@pytest.fixture
def mine(f):
    return lambda q, k, v, slopes, doc: f(q, k, v, slopes=slopes, doc=doc)


def test_alone_and_compiled(mine):
    given = inputs(2)
    assert_close(mine(*given), dense(*given))
    assert_close(jax.jit(mine)(*given), dense(*given))


def test_gradients(mine):
    given = inputs(2)
    assert_close(jax.grad(loss_of(mine), ALL)(*given), jax.jit(jax.grad(loss_of(dense), ALL))(*given))
    only_o = [jax.jit(jax.grad(lambda *args, g=g: jnp.sum(g(*args)[0] ** 2), (0, 3)))(*given) for g in (mine, dense)]
    assert_close(*only_o)
    rows = [jax.jit(jax.jacrev(lambda q, g=g: g(q, *given[1:])[0][0, 1, :2]))(given[0]) for g in (mine, dense)]
    assert_close(*rows)


def test_what_no_loss_reaches_has_no_gradient(mine):
    given = inputs(1)
    assert_close(jax.grad(lambda q: jnp.sum(q) + 0 * mine(q, *given[1:])[1].size)(given[0]), jnp.ones_like(given[0]))


@pytest.mark.parametrize("axes", [(0, 0, 0, None, 0), (1, 2, 0, None, None), (None, None, None, 0, None)])
def test_vmap(mine, axes):
    whole = inputs(3, 2)
    given = [whole[i] if axes[i] is not None else inputs(2)[i] for i in range(5)]
    if axes[3] == 0:
        given[3] = jnp.stack([given[3], 2 * given[3], 0 * given[3]])
    given = [x if axis is None else jnp.moveaxis(x, 0, axis) for x, axis in zip(given, axes)]
    assert_close(*(jax.jit(jax.vmap(g, axes))(*given) for g in (mine, dense)))
    assert_close(*(jax.jit(jax.vmap(jax.grad(loss_of(g), ALL), axes))(*given) for g in (mine, dense)))

    def summed(g):
        return lambda *args: sum(jnp.sum(x**2) for x in jax.vmap(g, axes)(*args))

    assert_close(*(jax.jit(jax.grad(summed(g), ALL))(*given) for g in (mine, dense)))


def test_vmap_of_vmap(mine):
    given = inputs(2, 3, 2)
    axes = (0, 0, 0, None, 0)
    assert_close(*(jax.jit(jax.vmap(jax.vmap(g, axes), axes))(*given) for g in (mine, dense)))


def test_vmap_is_one_call_where_nothing_counts_batches(mine):
    axes = (0, 0, 0, None, 0)
    program = str(jax.make_jaxpr(jax.vmap(mine, axes))(*inputs(3, 2)))
    assert "scan" not in program and program.count("attn_forward") == 1
    program = str(jax.make_jaxpr(jax.vmap(jax.grad(loss_of(mine), 3), axes))(*inputs(3, 2)))
    assert "scan" in program  # each has its own gradient of slopes


def test_what_counts_batches_is_computed_one_by_one():
    counts = attn.compile("attention c { dims B, Hq, Sq, D; score score * (b + 1); }")
    q = inputs(3, 2)[0]
    found = jax.vmap(counts)(q, q, q)
    for each, x in zip(found, q):
        assert_close(each, counts(x, x, x))


def test_remat_and_scan(mine):
    given = inputs(1)
    for g, h in ((jax.checkpoint(mine), dense), (jax.checkpoint(mine, policy=jax.checkpoint_policies.dots_saveable),
                                                 dense)):
        assert_close(*(jax.jit(jax.grad(loss_of(each), ALL))(*given) for each in (g, h)))

    def layers(g):
        def step(q, _):
            return g(q, *given[1:])

        return lambda q: sum(jnp.sum(x**2) for x in jax.lax.scan(step, q, None, length=3))

    assert_close(*(jax.jit(jax.grad(layers(g)))(given[0]) for g in (mine, dense)))


@pytest.mark.parametrize("derivative", [
    lambda g, q: jax.hessian(g)(q), lambda g, q: jax.jvp(g, (q,), (q,)), lambda g, q: jax.jacfwd(g)(q),
    lambda g, q: jax.grad(lambda x: jnp.sum(jax.grad(g)(x) ** 2))(q)])
def test_other_derivatives_are_refused(mine, derivative):
    given = inputs(1)
    with pytest.raises((attn.UnsupportedError, TypeError), match="reverse mode alone|forward-mode"):
        derivative(lambda q: jnp.sum(mine(q, *given[1:])[0] ** 2), given[0])


# --- several devices


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices("cpu")[:8]).reshape(4, 2), ("data", "model"))


SPECS = (*(P("data", "model"),) * 3, P("model"), P("data"))


def placed(mesh, given, specs=SPECS):
    return [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(given, specs)]


def test_batches_and_heads_stay_divided(mine, mesh):
    given = inputs(4)
    there = placed(mesh, given)
    program = jax.jit(mine).lower(*there).compile()
    assert "all-gather" not in program.as_text() and "all-to-all" not in program.as_text()
    gc.collect()
    found = program(*there)
    assert [x.sharding.spec for x in found] == [P("data", "model"), P("data", "model")]
    wanted = jax.jit(dense)(*given)
    assert_close(found, wanted)
    assert_close(mine(*there), wanted)


def test_gradients_stay_divided(mine, mesh):
    given = inputs(4)
    there = placed(mesh, given)
    program = jax.jit(jax.grad(loss_of(mine), ALL)).lower(*there).compile()
    words = program.as_text()
    assert "all-gather" not in words and "all-reduce" in words  # of slopes, over batches
    found = program(*there)
    assert [x.sharding.spec for x in found] == [*(P("data", "model"),) * 3, P("model")]
    assert_close(found, jax.jit(jax.grad(loss_of(dense), ALL))(*given))


def test_only_batches_are_divided(mine, mesh):
    given = inputs(4)
    there = placed(mesh, given, (*(P(("data",)),) * 3, P(), P("data")))
    assert_close(jax.jit(jax.grad(loss_of(mine), ALL))(*there), jax.jit(jax.grad(loss_of(dense), ALL))(*given))


def test_heads_that_all_share_one_stay_divided(mesh):
    f = attn.compile(text("shared"), Hkv=1)

    def mine(q, k, v, slopes, doc):
        return f(q, k, v, slopes=slopes, doc=doc)

    q, k, v, slopes, doc = inputs(4)
    given = (q, k[:, :1], v[:, :1], slopes, doc)
    there = placed(mesh, given, (P("data", "model"), P("data"), P("data"), P("model"), P("data")))
    program = jax.jit(jax.grad(loss_of(mine), ALL)).lower(*there).compile()
    assert "all-gather" not in program.as_text()
    found = program(*there)
    assert [x.sharding.spec for x in found] == [P("data", "model"), P("data"), P("data"), P("model")]
    assert_close(found, jax.jit(jax.grad(loss_of(dense), ALL))(*given))


def test_what_counts_heads_is_not_divided_by_them(mesh):
    counts = attn.compile("attention c { dims B, Hq, Sq, D; score score * (h + 1); }")
    q = inputs(4)[0]
    there = jax.device_put(q, NamedSharding(mesh, P("data", "model")))
    assert_close(jax.jit(counts)(there, there, there), counts(q, q, q))


@pytest.mark.parametrize("checks", [True, False])
def test_shard_map(mine, mesh, checks):
    given = inputs(4)
    mapped = jax.shard_map(mine, mesh=mesh, in_specs=SPECS, out_specs=(P("data", "model"),) * 2, check_vma=checks)
    assert_close(jax.jit(mapped)(*given), dense(*given))
    assert_close(jax.jit(jax.grad(loss_of(mapped), ALL))(*given), jax.jit(jax.grad(loss_of(dense), ALL))(*given))


def test_meshes_whose_axes_are_explicit(mine):
    given = inputs(4)
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2,
                         devices=jax.devices("cpu")[:8])
    with jax.set_mesh(mesh):
        there = placed(mesh, given)
        found = jax.jit(mine)(*there)
        gradients = jax.jit(jax.grad(loss_of(mine), (0, 1, 2)))(*there)
    assert [x.sharding.spec for x in found] == [P("data", "model"), P("data", "model")]
    assert_close([jax.device_put(x, jax.devices("cpu")[0]) for x in (*found, *gradients)],
                 [*dense(*given), *jax.jit(jax.grad(loss_of(dense), (0, 1, 2)))(*given)])


def test_an_exported_program_of_several_devices(mine, mesh):
    given = inputs(4)
    mapped = jax.jit(jax.shard_map(mine, mesh=mesh, in_specs=SPECS, out_specs=(P("data", "model"),) * 2))
    there = placed(mesh, given)
    exported = jax.export.export(mapped, disabled_checks=attn.jax.disabled_checks())(*there)
    assert exported.nr_devices == 8
    assert_close(jax.jit(exported.call)(*there), dense(*given))


@pytest.mark.parametrize("name", ["fox", "gated", "gpt_oss", "padding", "qk_norm"])
def test_specs_are_divided(name, mesh):
    f = attn.compile(name, Hq=4, Hkv=2)
    assert set(f.described.facts["divisible"]) == {"B", "Hq"}
    q, k, v, *_ = inputs(4, rows=6)
    sizes = {"B": 4, "Hq": 4, "Hkv": 2, "Sq": 6, "Skv": 6, "Dqk": 8, "Dv": 8}
    captured, specs = {}, {}
    for each, one in f.described.inputs.items():
        shape = tuple(extent(dim, sizes) for dim in one.dims)
        captured[each] = jnp.asarray(np.sin(np.arange(np.prod(shape)) + 1.0).reshape(shape)) if "f" in one.dtype else \
            jnp.asarray(np.arange(np.prod(shape)) % 5 + 2, jnp.int32).reshape(shape)
        specs[each] = P(*({"B": "data", "Hq": "model"}.get(dim) for dim in one.dims))
    learned = tuple(f.described.learned)

    def loss(qkv, learned, rest):
        return jnp.sum(jnp.sin(jax.tree.leaves(f(*qkv, **learned, **rest))[0]))

    def split(place):
        parts = [{each: place(x, specs[each]) for each, x in captured.items() if (each in learned) is wanted}
                 for wanted in (True, False)]
        return (tuple(place(x, P("data", "model")) for x in (q, k, v)), *parts)

    program = jax.jit(jax.grad(loss, (0, 1)))
    there = split(lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)))
    assert "all-gather" not in program.lower(*there).compile().as_text()
    assert_close(program(*there), program(*split(lambda x, spec: x)))
