"""attn.jax on the CPU: what calls take besides q, k and v, in JAX's usual 32 bits, beside NumPy's side of the package."""

import gc
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from jax_on_cpu import jax, on_cpu  # noqa: F401

import jax.numpy as jnp  # noqa: E402

import attn  # noqa: E402
import attn.jax  # noqa: E402

pytest.importorskip("ml_dtypes")
CAUSAL = "attention c { dims B, Hq, Hkv = Hq, Sq, Skv = Sq, D; mask q_idx >= kv_idx; outputs o, lse; }"


def some(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def qkv(batch=2, heads=4, key_heads=2, rows=6, depth=8):
    return [some(batch, each, rows, depth, seed=seed) for seed, each in enumerate((heads, key_heads, key_heads))]


def close(found, wanted, tolerance=1e-5):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(x, np.float64), np.asarray(y, np.float64), tolerance, tolerance)


def arrays(*given):
    return [jnp.asarray(x) for x in given]


def test_params_and_lengths():
    f = attn.compile("""attention p { dims B, Hq, Hkv = Hq // 2, Sq, D; param cap: f32; lengths q, kv;
      score cap * tanh(score / cap); outputs o, lse; }""")
    given, lengths = qkv(), {"lengths_q": np.array([6, 3], np.int32), "lengths_kv": np.array([4, 6], np.int32)}
    run = jax.jit(lambda q, k, v, lengths: f(q, k, v, cap=2.5, **lengths))
    close(run(*arrays(*given), {name: jnp.asarray(x) for name, x in lengths.items()}), f(*given, cap=2.5, **lengths))


def test_order_of_dimensions():
    f = attn.compile(CAUSAL, Hkv=2)
    given = qkv()
    swapped = arrays(*(np.ascontiguousarray(x.swapaxes(1, 2)) for x in given))
    o, lse = f(*swapped, layout="bshd")
    close((o.swapaxes(1, 2), lse), f(*given))
    assert attn.compile(CAUSAL, Hkv=2, layout="bshd")(*swapped)[0].shape == o.shape


def test_arrays_of_numpy_beside_those_of_jax():
    import ml_dtypes

    f = attn.compile(CAUSAL)
    q = some(1, 2, 5, 8).astype(ml_dtypes.bfloat16)
    o, _ = f(jnp.asarray(q), q, q)
    assert isinstance(o, jax.Array) and o.dtype == "bfloat16"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_dtypes(dtype):
    f = attn.compile(CAUSAL)
    q = jnp.asarray(some(1, 2, 5, 8), dtype)
    o, lse = f(q, q, q)
    assert o.dtype == dtype and lse.dtype == "float32"
    gradient = jax.grad(lambda q: jnp.sum(f(q, q, q)[0].astype(jnp.float32) ** 2))(q)
    exact = jax.grad(lambda q: jnp.sum(f(q, q, q)[0] ** 2))(q.astype(jnp.float32))
    assert gradient.dtype == dtype
    close(gradient, exact, 0.05)


DROPOUT = "attention d { dims B, Hq, Hkv = Hq, Sq, Skv = Sq, D; dropout 0.4; }"


def test_dropout_draws_by_the_key():
    f, (q, *_) = attn.compile(DROPOUT), qkv()
    run = jax.jit(lambda q, key: f(q, q, q, key=key))
    one, same, other = (run(jnp.asarray(q), jax.random.key(seed)) for seed in (3, 3, 4))
    assert jnp.array_equal(one, same) and not jnp.array_equal(one, other)
    assert run(jnp.asarray(q), jax.random.PRNGKey(3)).shape == q.shape  # keys of the old kind


def test_dropout_draws_by_a_seed_as_on_the_other_sides():
    f, (q, *_) = attn.compile(DROPOUT), qkv()
    for seed in (7, 2**40 + 5):
        wanted = f(q, q, q, seed=np.array([seed]), offset=np.array([3]))
        close(f(*arrays(q, q, q), seed=seed, offset=3), wanted)
    close(f(*arrays(q, q, q), seed=jnp.array([7]), offset=jnp.array(3)), f(q, q, q, seed=np.array([7]),
                                                                            offset=np.array([3])))


def test_mapped_dropout_is_that_of_each():
    f = attn.compile(DROPOUT)
    q, keys = jnp.asarray(some(3, 1, 2, 5, 8)), jax.random.split(jax.random.key(0), 3)
    found = jax.vmap(lambda q, key: f(q, q, q, key=key))(q, keys)
    close(found, jnp.stack([f(x, x, x, key=key) for x, key in zip(q, keys)]))


PACKED = """attention p { dims B = 3, Hq = 4, Hkv = 2, Sq = 5, Skv = 5, D = 8;
  layout q: thd, k: thd, v: thd, o: thd; mask q_idx >= kv_idx; outputs o, lse; }"""


def test_packed_sequences():
    f, each = attn.compile(PACKED), attn.compile(CAUSAL, Hkv=2)
    q, k, v = some(12, 4, 8), some(12, 2, 8, seed=1), some(12, 2, 8, seed=2)
    bounds = np.array([0, 5, 5, 10], np.int32)
    offsets = {"cu_seqlens_q": jnp.asarray(bounds), "cu_seqlens_kv": jnp.asarray(bounds)}

    def alone(q, k, v):
        parts = [each(*(x[a:b].swapaxes(0, 1)[None] for x in (q, k, v)))[0][0].swapaxes(0, 1)
                 for a, b in ((0, 5), (5, 10))]
        return jnp.concatenate([*parts, jnp.zeros((2, 4, 8))])

    run = jax.jit(lambda q, k, v: f(q, k, v, **offsets)[0])
    close(run(q, k, v), alone(*arrays(q, k, v)))
    losses = [jax.grad(lambda *x, g=g: jnp.sum(jnp.sin(g(*x))), (0, 1, 2)) for g in (run, alone)]
    close(*(loss(*arrays(q, k, v)) for loss in losses))
    mapped = jax.vmap(run)(*(jnp.stack([x, 2 * x]) for x in arrays(q, k, v)))
    close(mapped[1], run(2 * q, 2 * k, 2 * v))
    assert np.isneginf(np.asarray(f(*arrays(q, k, v), **offsets)[1][10:])).all()


def test_pages():
    text = """attention g { dims B = 2, Hq = 4, Hkv = 2, Sq = 1, Skv = 8, D = 8;
      layout k: paged(page = 4, pages = 6), v: paged(page = 4, pages = 6); lengths kv; }"""
    f = attn.compile(text)
    q, pools = some(2, 4, 1, 8), [some(6, 2, 4, 8, seed=seed) for seed in (1, 2)]
    table, lengths = np.array([[5, 0], [2, 3]], np.int32), np.array([7, 3], np.int32)
    rows = [pool[table].swapaxes(1, 2).reshape(2, 2, 8, 8) for pool in pools]
    wanted = attn.compile("attention g { dims B, Hq, Hkv = Hq // 2, Sq, Skv, D; lengths kv; }")(
        q, *rows, lengths_kv=lengths)
    given = {"page_table": jnp.asarray(table), "lengths_kv": jnp.asarray(lengths)}
    close(jax.jit(lambda q, *pools: f(q, *pools, **given))(q, *pools), wanted)
    given["page_table"] = jnp.asarray([[9, 0], [2, 3]], jnp.int32)
    with pytest.raises(Exception, match=r"page_table\[0, 0\] is 9, but k has 6 pages") as caught:
        jax.jit(lambda q, *pools: f(q, *pools, **given))(q, *pools).block_until_ready()
    assert isinstance(attn.jax.error_of(caught.value), attn.BindingError)


def test_8_bit_floats():
    f = attn.compile("fp8_causal", Hq=2, Hkv=2)
    q = jnp.asarray(some(1, 2, 6, 16), jnp.float8_e4m3fn)
    scales = {"descale_q": np.array([0.5], np.float32)}
    wanted = f(*(np.asarray(q.astype(jnp.float32)),) * 3, **scales)
    found = f(q, q, q, descale_q=jnp.array([0.5], jnp.float32))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted)):
        close(x.astype(jnp.float32), y, 0.05)


def test_without_rows_or_keys():
    f = attn.compile("attention n { dims B, Hq, Hkv = Hq, Sq, Skv, D; outputs o, lse; }")
    q, k = jnp.ones((1, 2, 3, 4)), jnp.ones((1, 2, 0, 4))
    o, lse = f(q, k, k)
    assert not o.any() and np.isneginf(lse).all()
    assert not jax.grad(lambda q: jnp.sum(f(q, k, k)[0]))(q).any()
    assert f(q[:0], q[:0], q[:0])[0].shape == (0, 2, 3, 4)


def test_other_statistics_have_no_gradient():
    f = attn.compile("attention s { dims B, Hq, Sq, D; outputs o, max; }")
    q, *_ = arrays(*qkv())
    assert jax.grad(lambda q: jnp.sum(f(q, q, q)[0] + jax.lax.stop_gradient(f(q, q, q)[1][..., None])))(q).any()
    with pytest.raises(attn.UnsupportedError, match="max has no gradient, and the backward reached it"):
        jax.grad(lambda q: jnp.sum(f(q, q, q)[1]))(q)


FRESH = """
    import sys
    import jax, numpy as np
    import attn.jax
    from jax import export
    program = export.deserialize(open(sys.argv[1], "rb").read())
    print(np.asarray(program.call(np.load(sys.argv[2]))).tobytes().hex())
"""


def test_an_exported_program_runs_in_a_fresh_process(tmp_path):
    pytest.importorskip("flatbuffers")
    f, (q, *_) = attn.compile(CAUSAL), qkv()
    compiled = jax.jit(jax.grad(lambda q: jnp.sum(f(q, q, q)[0] ** 2)))
    exported = jax.export.export(compiled, disabled_checks=attn.jax.disabled_checks())(q)
    (tmp_path / "program").write_bytes(exported.serialize())
    np.save(tmp_path / "q.npy", q)
    command = [sys.executable, "-c", textwrap.dedent(FRESH), str(tmp_path / "program"), str(tmp_path / "q.npy")]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    assert printed.strip() == np.asarray(compiled(q)).tobytes().hex()


def test_programs_for_gpus_are_exported_anywhere():
    pytest.importorskip("flatbuffers")
    f = attn.compile(CAUSAL, target="h200", B=1, Hq=2, Sq=128, D=64)
    q = jax.ShapeDtypeStruct((1, 2, 128, 64), jnp.bfloat16)
    options = {"platforms": ["cuda"], "disabled_checks": attn.jax.disabled_checks()}
    exported = jax.export.export(jax.jit(lambda q: f(q, q, q)[0]), **options)(q)
    words = exported.mlir_module()
    assert words.count("custom_call @attn_plan") == 1 and exported.platforms == ("cuda",)
    with pytest.raises(attn.BindingError, match="q, k and v are float32; on GPUs, kernels of `c` read bfloat16"):
        jax.export.export(jax.jit(lambda q: f(q, q, q)[0]), **options)(jax.ShapeDtypeStruct(q.shape, jnp.float32))
    with pytest.raises(attn.UnsupportedError, match="no GPU here that says what `c` is to be compiled for"):
        g = attn.compile(CAUSAL)
        jax.export.export(jax.jit(lambda q: g(q, q, q)[0]), **options)(q)


def test_functions_die_with_their_attention():
    q = jnp.ones((1, 1, 2, 4))
    f = attn.compile(CAUSAL)
    f(q, q, q)
    import weakref
    facts = weakref.ref(f._jax_facts)
    del f
    jax.clear_caches()
    gc.collect()
    assert facts() is None


def test_jit_that_is_switched_off():
    f, given = attn.compile(CAUSAL, Hkv=2), arrays(*qkv())
    with jax.disable_jit():
        close(f(*given), f(*map(np.asarray, given)))


def test_sizes_that_stay_open_in_an_exported_program():
    f = attn.compile(CAUSAL)
    batch, = jax.export.symbolic_shape("batch")
    shape = jax.ShapeDtypeStruct((batch, 2, 6, 8), jnp.float32)
    options = {"disabled_checks": attn.jax.disabled_checks()}
    run = jax.jit(lambda q: f(q, q, q)[0])
    q = jnp.asarray(some(3, 2, 6, 8))
    close(jax.export.export(run, **options)(shape).call(q), run(q))
    g = attn.compile(CAUSAL, target="h200", B=1, Hq=2, Sq=128, D=64)
    shape = jax.ShapeDtypeStruct((batch, 2, 128, 64), jnp.bfloat16)
    with pytest.raises(attn.UnsupportedError, match="a plan has numbers for sizes, and `c` is to be exported for"):
        jax.export.export(jax.jit(lambda q: g(q, q, q)[0]), platforms=["cuda"], **options)(shape)


def test_plans_of_a_file(tmp_path):
    attn.compile(CAUSAL, target="h200", B=1, Hq=2, Sq=128, D=64, direction="both").save(tmp_path / "causal.attnplan")
    f = attn.load(tmp_path / "causal.attnplan")

    def loss(q):
        return jnp.sum(f(q, q, q, layout="bshd")[0].astype(jnp.float32))  # as the spec lays them out

    export = jax.export.export(jax.jit(jax.value_and_grad(loss)), platforms=["cuda"],
                               disabled_checks=attn.jax.disabled_checks())
    words = export(jax.ShapeDtypeStruct((1, 128, 2, 64), jnp.bfloat16)).mlir_module()
    assert words.count("custom_call @attn_plan") == 2
    with pytest.raises(attn.UnsupportedError, match=r"no plan for training \(forward and backward\) with these sizes"):
        export(jax.ShapeDtypeStruct((2, 128, 2, 64), jnp.bfloat16))


ENDS = """
    import jax, jax.numpy as jnp, attn, attn.jax
    f = attn.compile("attention c { dims B, Hq, Sq, D; }")
    q = jnp.ones((2, 2, 32, 8))
    run = jax.jit(lambda q: f(f(q, q, q), q, q))
    found = [run(q) for _ in range(5)]
"""


def test_python_ends_while_programs_run():
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(ENDS)], capture_output=True, env=environment)
    assert ended.returncode == 0, ended.stderr
