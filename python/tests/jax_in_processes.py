"""One of the processes of test_jax_distributed.py: an attention of a global mesh, of which each process has a device.

usage: jax_in_processes.py PLATFORM ADDRESS RANK RANKS      PLATFORM: cpu or cuda
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_dense import dense, inputs, loss_of, text

import attn
import attn.jax

ALL = (0, 1, 2, 3)
TOLERANCES = {"cpu": 1e-5, "cuda": 1.5e-2}


def close(found, wanted, tolerance):
    """Whether the process's parts of arrays are those of the wanted ones, by relative L2."""
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        for shard in one.addressable_shards:
            mine, its = (np.asarray(x, np.float64) for x in (shard.data, np.asarray(other)[shard.index]))
            assert mine.shape == its.shape
            distance = np.linalg.norm(mine - its) / np.linalg.norm(its)
            assert distance < tolerance, distance


def check(spec, tolerance, f, given, dtype):
    """Outputs and gradients under `spec`: divided as q is, without a gather."""
    mesh = Mesh(np.array(jax.devices()), ("x",))
    of_heads = P(*spec[1:2])
    specs = (spec, spec, spec, of_heads, P(*spec[:1]))
    there = [jax.make_array_from_callback(x.shape, NamedSharding(mesh, one), lambda index, x=x: x[index])
             for x, one in zip(given, specs)]
    local = [np.asarray(x) for x in given]
    for mine, plain in ((f, dense), (jax.grad(loss_of(f), ALL), jax.grad(loss_of(dense), ALL))):
        program = jax.jit(mine).lower(*there).compile()
        assert "all-gather" not in program.as_text()
        found = program(*there)
        assert jax.tree.leaves(found)[0].sharding.spec == spec
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            wanted = jax.jit(plain)(*(jnp.asarray(x, jnp.float32 if x.dtype == dtype else x.dtype) for x in local))
        close(found, wanted, tolerance)


def main(platform, address, rank, ranks):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_platforms", "cpu" if platform == "cpu" else "cuda,cpu")
    jax.distributed.initialize(address, ranks, rank, local_device_ids=[rank] if platform == "cuda" else None)
    assert jax.device_count() == ranks and jax.local_device_count() == 1
    dtype = jnp.float32 if platform == "cpu" else jnp.bfloat16
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        given = [np.asarray(x) for x in inputs(4, rows=5 if platform == "cpu" else 129,
                                               depth=8 if platform == "cpu" else 64, dtype=dtype)]
    attention = attn.compile(text("divided"))

    def f(q, k, v, slopes, doc):
        return attention(q, k, v, slopes=slopes, doc=doc)

    for spec in (P("x"), P(None, "x")):
        check(spec, TOLERANCES[platform], f, given, dtype)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
