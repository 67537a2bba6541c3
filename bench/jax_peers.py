"""jax_peers.py [--size S] [--host]: attn.jax beside jax.nn.dot_product_attention (cuDNN) and, where it has the case,
Pallas' attention, on one GPU: milliseconds of a forward and of a forward with its backward, the best of a few rounds.
Prints a table. With --host also what a jitted call of an attention takes the host beside FFI calls of nothing and of an
empty kernel (libattn_bench_xla.so, of the build), and whether calls are captured into CUDA graphs."""

import argparse
import ctypes
import glob
import os
import pathlib
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np

import attn
import attn.jax

B, H, D, WINDOW, CAP = 2, 16, 128, 1024, 50.0
ROUNDS, CALLS = 5, 20


def some(shape, seed):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.bfloat16)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def window(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx <= WINDOW)


def softcap(score, b, h, q_idx, kv_idx):
    return CAP * jnp.tanh(score / CAP)


def alibi(score, b, h, q_idx, kv_idx):
    return score + (kv_idx - q_idx) * jnp.exp2(-((h + 1) * 8.0 / H))


def cudnn(named=(), **options):
    """jax.nn's attention; the arrays beside q, k and v are the arguments `named`."""
    return lambda q, k, v, *more: jax.nn.dot_product_attention(q, k, v, implementation="cudnn",
                                                               **dict(zip(named, more)), **options)


def pallas():
    from jax.experimental.pallas.ops.gpu import attention

    return lambda q, k, v, segments=None: attention.mha(q, k, v, segments, sm_scale=D**-0.5, causal=True)


def mine(score_mod=None, mask_mod=None):
    return lambda q, k, v: attn.jax.flex_attention(q, k, v, score_mod, mask_mod, layout="bshd")


def documents(q, k, v, doc):
    return mine(None, lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (doc[b, q_idx] == doc[b, kv_idx]))(q, k, v)


def biased(q, k, v, bias):
    return mine(lambda score, b, h, q_idx, kv_idx: score + bias[b, h, q_idx, kv_idx])(q, k, v)


def cases(rows):
    """The attentions of each peer by the name of a case, each with the arrays it takes beside q, k and v; None if a
    peer does not serve it. All arrays are arguments: XLA would fold those that a function closes over."""
    place = np.arange(rows)
    slopes = np.exp2(-(np.arange(1, H + 1) * 8.0 / H))
    distances = jnp.asarray(slopes[:, None, None] * (place[None] - place[:, None]), jnp.bfloat16)[None]
    doc = jnp.asarray(np.broadcast_to(place // 700, (B, rows)), jnp.int32)
    same = (doc[:, None, :, None] == doc[:, None, None, :]) & jnp.asarray(place[:, None] >= place)
    bias = some((B, H, rows, rows), 9)
    return {
        "causal": ((mine(None, causal),), (cudnn(is_causal=True),), (pallas(),)),
        "window": ((mine(None, window),), (cudnn(is_causal=True, local_window_size=(WINDOW, 0)),), None),
        "softcap": ((mine(softcap, causal),), None, None),
        "alibi": ((mine(alibi, causal),), (cudnn(["bias"], is_causal=True), distances), None),
        "document": ((documents, doc), (cudnn(["mask"]), same), (pallas(), doc)),
        "bias": ((biased, bias), (cudnn(["bias"]), bias), None),
    }


def milliseconds(run, given):
    jax.block_until_ready(run(*given))
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            found = run(*given)
        jax.block_until_ready(found)
        best = min(best, (time.perf_counter() - began) / CALLS * 1e3)
    return best


def measured(attention, given):
    """The times of a forward, and of one with its backward; a text if it fails."""
    if attention is None:
        return "-", "-"
    function, *more = attention
    try:
        both = jax.grad(lambda *given: jnp.sum(function(*given).astype(jnp.float32) ** 2), (0, 1, 2))
        return tuple(f"{milliseconds(jax.jit(each), (*given, *more)):.3f}" for each in (function, both))
    except Exception as error:
        return (f"{type(error).__name__}: {str(error).splitlines()[0][:60]}",) * 2


def microseconds(run, given, calls=3000):
    """What a call takes the host while the device is far from busy."""
    jax.block_until_ready(run(*given))
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        found = run(*given)
        times.append(time.perf_counter() - began)
        jax.block_until_ready(found)
    return float(np.median(times)) * 1e6


def host():
    q = some((1, 128, 1, 64), 1)
    handlers = ctypes.CDLL(str(next(pathlib.Path(__file__).resolve().parent.parent.glob("build/**/libattn_bench_xla.so"))))
    shape = jax.ShapeDtypeStruct(q.shape, q.dtype)
    bare = {}
    for name in ("nothing", "kernel"):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(handlers, f"bench_xla_{name}")), platform="CUDA")
        bare[name] = jax.jit(lambda q, k, v, name=name: jax.ffi.ffi_call(name, shape)(q, k, v))
    ours = jax.jit(mine(None, causal))
    for round in range(3):
        times = {name: microseconds(run, (q, q, q)) for name, run in {"ours": ours, **bare}.items()}
        print(f"host: {times['ours']:.2f} us a call, {times['nothing']:.2f} us one of nothing, {times['kernel']:.2f} us"
              " one of an empty kernel", flush=True)

    def layers(q):
        for _ in range(8):
            q = mine(None, causal)(q, q, q)
        return q

    run = jax.jit(layers)
    jax.block_until_ready(run(q))
    with tempfile.TemporaryDirectory() as trace:
        with jax.profiler.trace(trace):
            for _ in range(5):
                jax.block_until_ready(run(q))
        words = b"".join(pathlib.Path(name).read_bytes() for name in glob.glob(f"{trace}/**/*.xplane.pb",
                                                                               recursive=True))
    print(f"graphs: launches of graphs are {'' if b'GraphLaunch' in words else 'not '}in the trace of 8 layers"
          f" ({len(words)} bytes)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4096, help="rows and keys")
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--host", action="store_true")
    options = parser.parse_args()
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}; B={B} H={H} S={options.size} D={D}, bf16; ms",
          flush=True)
    if options.host:
        host()
    given = [some((B, options.size, H, D), seed) for seed in range(3)]
    print(f"{'':<10}{'attn.jax':>20}{'cuDNN (jax.nn)':>20}{'Pallas':>20}")
    for name, functions in cases(options.size).items():
        if options.only and name not in options.only:
            continue
        found = ("/".join(measured(each, given)) for each in functions)
        print(f"{name:<10}" + "".join(f"{each:>20}" for each in found), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    main()
