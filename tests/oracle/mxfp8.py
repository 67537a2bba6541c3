"""Attention with scales of blocks (MXFP8) in numpy, and its gradients: the OCP Microscaling Formats Specification
1.0, with scales in the order that cuDNN calls F8_128x4."""

import fp8
import numpy

BLOCK = 32


def padded(x, axis, multiple):
    """x with ones up to a multiple along the axis."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % multiple)
    return numpy.pad(x, widths, constant_values=1)


def random_scales(rng, shape, along_rows):
    """A power of two for each block of a [B, H, S, D] tensor: [B, H, S / 32, D], or [B, H, S, D / 32]."""
    shape = list(shape)
    axis = 2 if along_rows else 3
    shape[axis] = -(-shape[axis] // BLOCK)
    return 2.0 ** rng.integers(-3, 3, size=shape)


def spread(scales, along_rows, shape):
    """The scale of each element."""
    axis = 2 if along_rows else 3
    return numpy.repeat(scales, BLOCK, axis=axis)[:, :, : shape[2], : shape[3]]


def stored(scales, along_rows):
    """As they lie in memory, in the shape that the attention declares: tiles of 128 elements and 4 blocks."""
    if along_rows:
        full = padded(padded(scales, 2, 4), 3, 128)
        b, h, blocks, elements = full.shape
        tiles = full.swapaxes(2, 3).reshape(b, h, elements // 128, 4, 32, blocks // 4, 4)
        order = tiles.transpose(2, 0, 1, 5, 4, 3, 6)
    else:
        full = padded(padded(scales, 2, 128), 3, 4)
        b, h, elements, blocks = full.shape
        tiles = full.reshape(b, h, elements // 128, 4, 32, blocks // 4, 4)
        order = tiles.transpose(0, 1, 2, 5, 4, 3, 6)
    return order.reshape(full.shape)


def quantized(x, axis, dtype):
    """x as blocks along the axis hold it: each with the least power of two that does not saturate."""
    x = numpy.moveaxis(x, axis, -1)
    size = x.shape[-1]
    blocks = numpy.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -size % BLOCK)]).reshape(*x.shape[:-1], -1, BLOCK)
    largest = {"e4m3": 448.0, "e5m2": 57344.0}[dtype]
    amax = abs(blocks).max(axis=-1, keepdims=True)
    with numpy.errstate(divide="ignore"):
        exponent = numpy.ceil(numpy.log2(amax / largest))
    scale = 2.0 ** numpy.clip(exponent, -127, 127)
    rounded = (fp8.round_to(dtype, blocks / scale) * scale).reshape(*x.shape[:-1], -1)[..., :size]
    return numpy.moveaxis(rounded, -1, axis)


def half(name, x):
    """Rounded once, ties to even; bf16 without overflow and subnormal numbers."""
    if name == "f16":
        return x.astype(numpy.float16).astype(float)
    fraction, exponent = numpy.frexp(x)
    return numpy.ldexp(numpy.round(numpy.ldexp(fraction, 8)), exponent - 8)


def softmax(scores, visible):
    s = numpy.where(visible, scores, -numpy.inf)
    largest = s.max(axis=-1, keepdims=True)
    w = numpy.exp(s - numpy.where(numpy.isneginf(largest), 0, largest))
    total = w.sum(axis=-1, keepdims=True)
    return w, total, largest


def attention(dtype, o_dtype, q, k, v, visible):
    """o, lse and amax_o of tensors that were multiplied with their scales."""
    group = q.shape[1] // k.shape[1]
    k, v = (numpy.repeat(x, group, axis=1) for x in (k, v))
    w, total, largest = softmax(numpy.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5, visible)
    w8 = fp8.round_to(dtype, 16 * w) / 16
    y = numpy.einsum("bhqk,bhkd->bhqd", w8, v) / numpy.where(total == 0, 1, total)
    with numpy.errstate(divide="ignore"):
        lse = (largest + numpy.log(total))[..., 0]
    return {"o": half(o_dtype, y), "lse": lse, "amax_o": numpy.array([abs(y).max()])}


def gradients(types, x, visible):
    """dq, dk, dv and their amax. `types`: of q, k, v; of o; of do; of the gradients. `x` has q, k, v, do and
    their copies, times their scales, and do_f16."""
    dtype, o_dtype, do_dtype, gradient_dtype = types
    o = attention(dtype, o_dtype, x["q"], x["k"], x["v"], visible)["o"]
    group = x["q"].shape[1] // x["k"].shape[1]
    k, k_t, v_t = (numpy.repeat(x[name], group, axis=1) for name in ("k", "k_t", "v_t"))
    scale = k.shape[-1] ** -0.5
    w, total, _ = softmax(numpy.einsum("bhqd,bhkd->bhqk", x["q"], k) * scale, visible)
    p = w / numpy.where(total == 0, 1, total)
    delta = (x["do_f16"] * o).sum(axis=-1, keepdims=True)
    ds = scale * p * (numpy.einsum("bhqd,bhkd->bhqk", x["do"], v_t) - delta)
    p8 = fp8.round_to(dtype, 256 * p) / 256

    def over_group(y):
        return y.reshape(y.shape[0], -1, group, *y.shape[2:]).sum(axis=2)

    real = {
        "dq": numpy.einsum("bhqk,bhkd->bhqd", quantized(ds, 3, do_dtype), k_t),
        "dk": over_group(numpy.einsum("bhqk,bhqd->bhkd", quantized(ds, 2, do_dtype), x["q_t"])),
        "dv": over_group(numpy.einsum("bhqk,bhqd->bhkd", p8, x["do_t"])),
    }
    amax = {f"amax_{name}": numpy.array([abs(y).max()]) for name, y in real.items()}
    return {**{name: half(gradient_dtype, y) for name, y in real.items()}, **amax}
