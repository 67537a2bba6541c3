"""Scales of keys and values of 8 bits beside queries of 16, `quantize kv(..)`."""

import numpy

# The axes of [B, Hkv, Skv] that scales have.
AXES = {
    "tensor": (), "head": (1,), "batch_head": (0, 1), "token": (0, 2), "token_head": (0, 1, 2),
}


def shape(way, batches, heads, keys):
    """The dims of k_scale and v_scale."""
    if way == "token":
        return (batches, 1, keys)
    return tuple((batches, heads, keys)[axis] for axis in AXES[way]) or (1,)


def scales(way, values):
    """The scales as they multiply [B, Hkv, Skv, D]."""
    values = numpy.asarray(values, numpy.float64)
    if values.ndim == 3:
        return values[..., None]
    missing = tuple(axis for axis in range(3) if axis not in AXES[way])
    if not AXES[way]:
        return values.reshape(1, 1, 1, 1)
    return numpy.expand_dims(values, (*missing, 3))
