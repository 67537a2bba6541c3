"""Inputs of the specs of specs/ for attn.jax: small, and with values that each spec's integers may have."""

import jax.numpy as jnp
import numpy as np
from jax_dense import some

from attn.arguments import extent

B, S = 2, 160
PAGE, TABLE = 64, np.array([[5, 0, 4], [2, 3, 1]])

ROWS = {"chunked_prefill": 48, "cross": 96, "decode": 1, "decode_gqa": 1, "paged_decode": 1, "thd": 100,
        "tree_decode": 64, "tree_mask": 64, "split_kv": 1}
PARAMETERS = {"natten_2d": {"width": 16, "height": 10}, "natten_tiled": {"width": 16, "height": 10},
              "sliding_tile_2d": {"width": 16, "height": 10}}

# Values of integers that specs read, by name and shape; others are zeros.
INTEGERS = {
    "lengths_kv": lambda shape: [S, S // 3], "lengths_q": lambda shape: [S, S // 3],
    "doc": lambda shape: np.broadcast_to(np.arange(shape[-1]) // 50, shape),
    "offs": lambda shape: np.minimum(np.arange(shape[0]) * 50, S),
    "image": lambda shape: np.broadcast_to(np.arange(shape[-1]) // 30 % 3, shape),
    "residues": lambda shape: [S, S // 3], "pos": lambda shape: np.broadcast_to(np.arange(shape[-1]), shape),
    "pad": lambda shape: [0, 20], "prefix_length": lambda shape: [40, 0], "prompt": lambda shape: [40, 80],
    "place": lambda shape: np.broadcast_to(np.arange(shape[-1]) % 16, shape),
    "branch": lambda shape: np.broadcast_to(np.maximum(np.arange(shape[-1]) - 60, 0) // 25, shape),
    "ancestors": lambda shape: np.broadcast_to(np.arange(1, shape[1] + 1)[:, None] * 0x9E3779 | 1, shape),
    "q_offs": lambda shape: [0, 20, 60, 60, 150], "kv_offs": lambda shape: [0, 50, 70, 100, S],
    "cu_seqlens_q": lambda shape: [0, 100, 130], "cu_seqlens_kv": lambda shape: [0, S, S + 70],
    "blocks": lambda shape: np.arange(np.prod(shape)).reshape(shape) % 3 != 1,
    "is_global": lambda shape: np.broadcast_to(np.arange(shape[-1]) % 37 == 0, shape),
    "keep": lambda shape: np.random.default_rng(5).random(shape) < 0.8,
    "page_table": lambda shape: TABLE,
}
# Values of floats where those of a normal distribution would leave scores all but equal, so that gradients are
# differences of nearly the same numbers: of norms and rotations.
FLOATS = {
    "q_weight": lambda shape: 1 + 0.2 * np.sin(np.arange(shape[0])),
    "k_weight": lambda shape: 1 + 0.2 * np.cos(np.arange(shape[0])),
    "cosines": lambda shape: np.cos(angles(shape)), "sines": lambda shape: np.sin(angles(shape)),
    "forget": lambda shape: -0.05 * np.abs(np.random.default_rng(6).normal(size=shape)),
}


def angles(shape):
    return np.arange(shape[0])[:, None] * 100.0 ** (-np.arange(shape[1]) / shape[1])


def sizes_of(name, described, key_heads=None):
    group, rows = described.facts["group"], ROWS.get(name, S)
    key_heads = key_heads or (1 if group > 4 else 2)
    return {**described.sizes, "B": B, "Hq": group * key_heads, "Hkv": key_heads, "Sq": rows, "Skv": S}


def array_of(name, dtype, shape, seed):
    if name in FLOATS:
        return jnp.asarray(FLOATS[name](shape), jnp.float32)
    if "f" in dtype:
        return some(shape, seed, jnp.bfloat16 if dtype == "bf16" else jnp.float32, 0.3)
    values = np.asarray(INTEGERS[name](shape)) if name in INTEGERS else np.zeros(shape)
    return jnp.asarray(values, jnp.bool_ if dtype == "bool" else jnp.int32)


def shapes_of(described, sizes):
    """Those of q, k and v."""
    shapes = {"q": ("B", "Hq", "Sq", "Dqk"), "k": ("B", "Hkv", "Skv", "Dqk"), "v": ("B", "Hkv", "Skv", "Dv")}
    for name, dims in shapes.items():
        heads, depth = sizes[dims[1]], sizes[dims[3]]
        if name in described.tables:
            yield (TABLE.size, heads, PAGE, depth)
        elif name in described.packed:
            yield (250, heads, depth)
        else:
            yield (sizes["B"], heads, sizes[dims[2]], depth)


def inputs_of(name, described, key_heads=None):
    """q, k and v, and the other tensors by name."""
    sizes = sizes_of(name, described, key_heads)
    qkv = [some(shape, seed) for seed, shape in enumerate(shapes_of(described, sizes))]
    others = {}
    for seed, one in enumerate(described.inputs.values()):
        if one.optional:
            continue
        shape = tuple(3 if dim == "pages of a row" else int(extent(dim, sizes)) for dim in one.dims)
        others[one.name] = array_of(one.name, one.dtype, shape, seed + 5)
    return tuple(qkv), others
