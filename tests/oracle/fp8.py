"""8-bit floats in numpy: their values from tables of 256 entries, and 8-bit attention with its gradients."""

import numpy

# (exponent bits, fraction bits, bias); the OCP 8-bit Floating Point Specification, revision 1.0.
FORMATS = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15)}
EXACT = "exact"  # a format that rounds nothing


def table(name):
    """The value of each byte."""
    exponent_bits, fraction_bits, bias = FORMATS[name]
    values = []
    for byte in range(256):
        exponent = byte >> fraction_bits & (1 << exponent_bits) - 1
        fraction = (byte & (1 << fraction_bits) - 1) / (1 << fraction_bits)
        value = 2.0 ** (1 - bias) * fraction if exponent == 0 else 2.0 ** (exponent - bias) * (1 + fraction)
        if name == "e4m3" and byte & 0x7F == 0x7F:
            value = numpy.nan
        if name == "e5m2" and exponent == 31:
            value = numpy.inf if fraction == 0 else numpy.nan
        values.append(-value if byte & 0x80 else value)
    return numpy.array(values)


def round_to(name, x):
    """x as the format holds it: to the nearest, ties to the even byte, saturating."""
    if name == EXACT:
        return x
    if name == "bf16":
        bits = numpy.asarray(x, numpy.float32).view(numpy.uint32)
        kept = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return kept.astype(numpy.uint32).view(numpy.float32).astype(float)
    finite = numpy.isfinite(table(name)[:128])
    values = table(name)[:128][finite]  # ascending
    magnitude = numpy.minimum(abs(x), values[-1])
    above = numpy.searchsorted(values, magnitude).clip(1)
    low, high = values[above - 1], values[above]
    to_high = (magnitude - low > high - magnitude) | (
        (magnitude - low == high - magnitude) & (above % 2 == 0)
    )
    return numpy.copysign(numpy.where(to_high, high, low), x)


def attention(dtype, o_dtype, q, k, v, scales, modify, sinks=None, scale=None):
    """o as it is stored, lse, amax_s and amax_o. `modify` gets the scores and returns those with -inf where
    hidden; sinks are [Hq]."""
    q, k, v = (round_to(dtype, x) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (numpy.repeat(x, group, axis=1) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    s = numpy.einsum("bhqd,bhkd->bhqk", q, k) * (scale * scales["descale_q"] * scales["descale_k"])
    s = modify(s)
    sink = numpy.full(s.shape[1], -numpy.inf) if sinks is None else sinks
    sink = numpy.broadcast_to(sink[None, :, None, None], s.shape[:3] + (1,))
    largest = numpy.maximum(s.max(axis=-1, keepdims=True), sink)
    shift = numpy.where(numpy.isneginf(largest), 0, largest)
    w = numpy.exp(s - shift)
    total = w.sum(axis=-1, keepdims=True) + numpy.exp(sink - shift)
    empty = numpy.isneginf(s.max(axis=-1, keepdims=True))
    w8 = round_to(dtype, w * scales["scale_s"])
    y = numpy.einsum("bhqk,bhkd->bhqd", w8, v) * (scales["descale_s"] * scales["descale_v"])
    y = numpy.where(empty, 0, y / numpy.where(total == 0, 1, total))
    with numpy.errstate(divide="ignore"):
        lse = (shift + numpy.log(total))[..., 0]
    p = numpy.where(empty, 0, w / numpy.where(total == 0, 1, total))
    return {
        "o": round_to(o_dtype, y * scales.get("scale_o", 1)),
        "lse": lse,
        "amax_s": numpy.array([abs(p).max()]),
        "amax_o": numpy.array([abs(y).max()]),
    }


def gradients(types, q, k, v, d_o, scales, visible):
    """dq, dk and dv as they are stored, and the amax of each and of dp, of attention with a mask. `types`: of q,
    k, v; of o; of do; of the gradients."""
    dtype, o_dtype, do_dtype, gradient_dtype = types
    o = attention(dtype, o_dtype, q, k, v, scales, lambda s: numpy.where(visible, s, -numpy.inf))["o"]
    q, k, v = (round_to(dtype, x) for x in (q, k, v))
    d_o = round_to(do_dtype, d_o)
    group = q.shape[1] // k.shape[1]
    all_k, all_v = (numpy.repeat(x, group, axis=1) for x in (k, v))
    scale = q.shape[-1] ** -0.5
    s = numpy.einsum("bhqd,bhkd->bhqk", q, all_k) * (scale * scales["descale_q"] * scales["descale_k"])
    w = numpy.where(visible, numpy.exp(s - numpy.where(visible, s, -numpy.inf).max(axis=-1, keepdims=True)), 0)
    p = w / w.sum(axis=-1, keepdims=True)
    delta = (d_o * o).sum(axis=-1, keepdims=True) * (scales["descale_do"] * scales.get("descale_o", 1))
    dp = numpy.einsum("bhqd,bhkd->bhqk", d_o, all_v) * (scales["descale_do"] * scales["descale_v"])
    ds = scale * p * (dp - delta)
    p8 = round_to(dtype, p * scales["scale_s"])
    ds8 = round_to(do_dtype, ds * scales["scale_dp"])

    def over_group(x):
        return x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(axis=2)

    real = {
        "dq": numpy.einsum("bhqk,bhkd->bhqd", ds8, all_k) * (scales["descale_dp"] * scales["descale_k"]),
        "dk": over_group(numpy.einsum("bhqk,bhqd->bhkd", ds8, q)) * (scales["descale_dp"] * scales["descale_q"]),
        "dv": over_group(numpy.einsum("bhqk,bhqd->bhkd", p8, d_o)) * (scales["descale_s"] * scales["descale_do"]),
    }
    stored = {name: round_to(gradient_dtype, x * scales.get(f"scale_{name}", 1)) for name, x in real.items()}
    amax = {f"amax_{name}": numpy.array([abs(x).max()]) for name, x in {**real, "dp": ds}.items()}
    return {**stored, **amax}
