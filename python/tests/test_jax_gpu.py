"""attn.jax on a GPU, beside the dense reference in double precision."""

import os
import subprocess
import sys
import textwrap

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

jax = pytest.importorskip("jax")
try:
    GPUS = jax.devices("cuda")
except RuntimeError:
    pytest.skip("JAX finds no CUDA GPU", allow_module_level=True)

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import attn  # noqa: E402
import attn.jax  # noqa: E402
import jax_specs  # noqa: E402
from jax_dense import difference, on_cpu, some  # noqa: E402

B, H, S, D = jax_specs.B, 4, jax_specs.S, 64
FORWARD, BACKWARD = 6e-3, 1.5e-2

CAUSAL = "attention c { dims B, Hq, Hkv = Hq, Sq, Skv = Sq, D; mask q_idx >= kv_idx; }"


def test_a_prologue_whose_scores_are_all_but_equal():
    """Norms with small weights: the forward says little of q and k there, but their gradients do."""
    f = attn.compile("qk_norm", Hq=H, Hkv=1)
    qkv, captured = jax_specs.inputs_of("qk_norm", f.described, 1)
    captured |= {name: captured[name] * 0.3 for name in ("q_weight", "k_weight")}
    weights = some(qkv[0].shape, 11).astype(jnp.float32)  # regular ones cancel
    gradient = jax.jit(jax.grad(lambda qkv, captured: jnp.sum(f(*qkv, **captured)[0].astype(jnp.float32) * weights)))
    found = {name: difference(x, y) for name, x, y in zip("qkv", gradient(qkv, captured),
                                                          gradient(*on_cpu((qkv, captured))))}
    assert max(found.values()) < BACKWARD, found


def test_gradients_of_lse_and_order_of_dimensions():
    f = attn.compile("attention c { dims B, Hq, Hkv = Hq // 2, Sq, D; mask q_idx >= kv_idx; outputs o, lse; }", Hkv=2)
    qkv = tuple(some((B, heads, S, D), seed) for seed, heads in enumerate((H, 2, 2)))

    def loss(qkv, layout="bhsd"):
        qkv = tuple(x.swapaxes(1, 2) for x in qkv) if layout == "bshd" else qkv
        o, lse = f(*qkv, layout=layout)
        return jnp.sum(o.astype(jnp.float32) ** 2) + jnp.sum(jnp.sin(lse))

    found, wanted = jax.jit(jax.grad(loss))(qkv), jax.jit(jax.grad(loss))(on_cpu(qkv))
    swapped = jax.jit(jax.grad(lambda qkv: loss(qkv, "bshd")))(qkv)
    for x, y, z in zip(found, wanted, swapped):
        assert difference(x, y) < BACKWARD and difference(z, y) < BACKWARD


def test_mapped_scanned_and_donated():
    f = attn.compile(CAUSAL)
    q = some((3, B, H, S, D), 1)
    found = jax.jit(jax.vmap(f, (0, None, 0)))(q, q[0], q)
    for x, each in zip(found, q):
        assert difference(x, f(each, q[0], each)) < 1e-6

    def layers(q):
        return jax.lax.scan(lambda x, _: (f(x, x, x), None), q, None, length=5)[0]

    wanted = q[0]
    for _ in range(5):
        wanted = f(wanted, wanted, wanted)
    donated = jax.jit(layers, donate_argnums=0)
    for _ in range(4):
        assert difference(donated(jnp.copy(q[0])), wanted) < 1e-6


def test_dropout_is_repeated_by_the_key():
    f = attn.compile("attention d { dims B, Hq, Hkv = Hq, Sq, Skv = Sq, D; dropout 0.2; }")
    q = some((B, H, S, D), 1)
    run = jax.jit(lambda key: jax.value_and_grad(lambda q: jnp.sum(f(q, q, q, key=key).astype(jnp.float32)))(q))
    one, same, other = (run(jax.random.key(seed)) for seed in (1, 1, 2))
    assert jnp.array_equal(one[1], same[1]) and not jnp.array_equal(one[1], other[1])


def test_packed_sequences():
    text = """attention p { dims B, Hq, Hkv = Hq, Sq = 100, Skv = Sq, D; layout q: thd, k: thd, v: thd, o: thd;
      mask q_idx >= kv_idx; outputs o, lse; }"""
    f = attn.compile(text, B=3, Hq=H, D=D)
    q, k, v = (some((250, H, D), seed) for seed in range(3))
    offsets = jnp.asarray([0, 100, 130, 230], jnp.int32)
    run = jax.jit(lambda q, k, v, offsets: f(q, k, v, cu_seqlens_q=offsets, cu_seqlens_kv=offsets))
    found, wanted = run(q, k, v, offsets), run(*on_cpu((q, k, v, offsets)))
    assert all(difference(x, y) < FORWARD for x, y in zip(found, wanted))
    assert not np.asarray(found[0][230:]).any() and np.isneginf(np.asarray(found[1][230:])).all()

    def loss(q, k, v, offsets):
        return jnp.sum(jnp.sin(run(q, k, v, offsets)[0].astype(jnp.float32)))

    gradient = jax.jit(jax.grad(loss, (0, 1, 2)))
    for x, y in zip(gradient(q, k, v, offsets), gradient(*on_cpu((q, k, v, offsets)))):
        assert difference(x, y) < BACKWARD


def test_pages():
    f = attn.compile("""attention g { dims B = 2, Hq = 8, Hkv = 2, Sq = 1, Skv = 200, D = 64;
      layout k: paged(page = 64, pages = 12), v: paged(page = 64, pages = 12); lengths kv; align bottom_right;
      mask q_idx >= kv_idx; outputs o, lse; }""")
    q, pools = some((2, 8, 1, 64), 1), [some((9, 2, 64, 64), seed) for seed in (2, 3)]
    given = {"page_table": jnp.asarray([[5, 0, 8, 1], [2, 3, 7, 7]], jnp.int32),
             "lengths_kv": jnp.asarray([200, 70], jnp.int32)}
    run = jax.jit(lambda q, k, v, given: f(q, k, v, **given))
    found, wanted = run(q, *pools, given), run(*on_cpu((q, *pools, given)))
    assert all(difference(x, y) < FORWARD for x, y in zip(found, wanted))


def test_8_bit_floats():
    f = attn.compile("fp8_causal", Hq=H, Hkv=H)
    x = [some((B, H, S, D), seed).astype(jnp.float8_e4m3fn) for seed in range(3)]
    run = jax.jit(lambda q, k, v: f(q, k, v, descale_q=jnp.full((1,), 0.5)))
    found, wanted = run(*x), run(*on_cpu(tuple(x)))
    for one, other in zip(found, wanted):
        assert one.dtype == other.dtype
        assert difference(one.astype(jnp.float32), other.astype(jnp.float32)) < 0.06


def test_what_kernels_do_not_read_is_refused():
    f = attn.compile(CAUSAL)
    q = some((B, H, S, D), 1, jnp.float32)
    with pytest.raises(attn.BindingError, match="float32; on GPUs, kernels of `c` read bfloat16 and float16"):
        f(q, q, q)


EXPORTED = """
    import sys
    import jax, numpy as np
    import attn.jax
    from jax import export
    program = export.deserialize(open(sys.argv[1], "rb").read())
    q = np.load(sys.argv[2])
    import jax.numpy as jnp
    np.save(sys.argv[3], np.asarray(program.call(jnp.asarray(q, jnp.bfloat16)).astype(jnp.float32)))
"""


def test_exported_programs_run_in_a_fresh_process_without_the_compiler(tmp_path):
    f = attn.compile(CAUSAL)
    q = some((B, H, S, D), 1)
    compiled = jax.jit(jax.grad(lambda q: jnp.sum(f(q, q, q).astype(jnp.float32) ** 2)))
    program = jax.export.export(compiled, platforms=["cuda"], disabled_checks=attn.jax.disabled_checks())(q)
    (tmp_path / "program").write_bytes(program.serialize())
    np.save(tmp_path / "q.npy", np.asarray(q.astype(jnp.float32)))
    names = [str(tmp_path / name) for name in ("program", "q.npy", "o.npy")]
    environment = {**os.environ, "ATTN_ATTNC": "/nowhere"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(EXPORTED), *names], check=True, env=environment)
    assert np.array_equal(np.load(names[2]), np.asarray(compiled(q).astype(jnp.float32)))


@pytest.mark.skipif(len(GPUS) < 2, reason="one GPU")
def test_two_gpus_keep_batches_and_heads_divided():
    f = attn.compile("alibi_slopes", Hq=H, Hkv=H)
    (q, k, v), captured = jax_specs.inputs_of("alibi_slopes", f.described, H)

    def loss(q, k, v, captured):
        return jnp.sum(jnp.sin(f(q, k, v, **captured)[0].astype(jnp.float32)))

    for spec in (P("x"), P(None, "x")):
        sharding = NamedSharding(Mesh(np.array(GPUS[:2]), ("x",)), spec)
        there = [jax.device_put(x, sharding) for x in (q, k, v)]
        program = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*there, captured).compile()
        assert "all-gather" not in program.as_text()
        found, wanted = program(*there, captured), jax.jit(jax.grad(loss, (0, 1, 2)))(q, k, v, captured)
        assert all(x.sharding.spec == spec for x in found)
        assert all(difference(x, y) < BACKWARD for x, y in zip(found, wanted))


STEPS, RATE = 200, 0.05
LEARNED = """attention l { dims B, Hq, Hkv = Hq, Sq, Skv = Sq, D; learn table: f32[Hq, 65];
  score score + table[h, clamp(kv_idx - q_idx, -32, 32) + 32]; mask q_idx >= kv_idx; }"""


def initial():
    generator = np.random.default_rng(0)
    weights = [(generator.normal(size=(H * D, H * D)) / (H * D) ** 0.5).astype(np.float32) for _ in range(4)]
    return [*weights, np.zeros((H, 65), np.float32)], generator.normal(size=(2, B, S, H * D)).astype(np.float32)


def losses_of_jax(f, parameters, x, target):
    def loss(parameters):
        *weights, table = parameters
        q, k, v = ((x @ w).reshape(B, S, H, D).astype(jnp.bfloat16) for w in weights[:3])
        o = f(q, k, v, table=table, layout="bshd").astype(jnp.float32)
        return jnp.mean((o.reshape(B, S, H * D) @ weights[3] - target) ** 2)

    @jax.jit
    def step(parameters):
        found, gradients = jax.value_and_grad(loss)(parameters)
        return found, [p - RATE * g for p, g in zip(parameters, gradients)]

    losses = []
    with jax.default_matmul_precision("highest"):
        for _ in range(STEPS):
            found, parameters = step(parameters)
            losses.append(float(found))
    return losses


def losses_of_torch(f, parameters, x, target):
    import torch

    parameters = [torch.tensor(p, device="cuda", requires_grad=True) for p in parameters]
    x, target = (torch.tensor(each, device="cuda") for each in (x, target))
    losses = []
    for _ in range(STEPS):
        *weights, table = parameters
        q, k, v = ((x @ w).view(B, S, H, D).to(torch.bfloat16) for w in weights[:3])
        o = f(q, k, v, table=table, layout="bshd").float()
        found = ((o.reshape(B, S, H * D) @ weights[3] - target) ** 2).mean()
        for p, g in zip(parameters, torch.autograd.grad(found, parameters)):
            p.data -= RATE * g
        losses.append(found.item())
    return losses


def test_training_follows_that_of_pytorch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no CUDA GPU")
    f = attn.compile(LEARNED)
    parameters, (x, target) = initial()
    ours = losses_of_jax(f, [jnp.asarray(p) for p in parameters], jnp.asarray(x), jnp.asarray(target))
    theirs = losses_of_torch(f, parameters, x, target)
    assert ours[-1] < 0.97 * ours[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)
