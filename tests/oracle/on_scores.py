"""Specs that modify scores."""

import math

import numpy

from on_visibility import last_keys
from registry import spec


@spec
def softcap(s, at, p, t):
    return p.cap * numpy.tanh(s / p.cap), True


@spec
def fox(s, at, p, t):
    """The logarithms of the gates between a key and the query, added up along the sequence."""
    forgotten = numpy.cumsum(-numpy.log1p(numpy.exp(-t["forget"])), axis=-1)
    return s + forgotten[:, :, :, None] - forgotten[:, :, None, :], at.k <= at.q


@spec
def gemma2_local(s, at, p, t):
    return 50 * numpy.tanh(s / 50), last_keys(at, p.window)


@spec
def gemma2_global(s, at, p, t):
    return 50 * numpy.tanh(s / 50), at.k <= at.q


def slopes(heads):
    """ALiBi slopes. For a power of two of heads: a geometric series that starts with its ratio. Otherwise
    the series of the next lower power of two, then every other slope of twice as many heads."""
    power = 1
    while 2 * power <= heads:
        power *= 2
    ratio, finer = 2.0 ** (-8 / power), 2.0 ** (-4 / power)
    head = [ratio ** (i + 1) for i in range(power)]
    return numpy.array(head + [finer ** (2 * i + 1) for i in range(heads - power)])


@spec
def alibi(s, at, p, t):
    return s - slopes(at.dims.Hq)[at.h] * (at.q - at.k), at.k <= at.q


def sigmoid(s):
    weight = 1 / (1 + numpy.exp(-numpy.maximum(s, -700)))
    return weight, weight * (1 - weight)


@spec(name="sigmoid", each=sigmoid)
def sigmoid_with_bias(s, at, p, t):
    return s - math.log(at.dims.Skv), True


@spec(each=sigmoid)
def sigmoid_causal(s, at, p, t):
    with_alibi = s - slopes(at.dims.Hq)[at.h] * (at.q - at.k)
    return with_alibi - numpy.log(at.q + 1), at.k <= at.q


def silu_over_keys(s):
    weight, keys = 1 / (1 + numpy.exp(-s)), s.shape[-1]
    return s * weight / keys, weight * (1 + s * (1 - weight)) / keys


@spec(each=silu_over_keys)
def hstu(s, at, p, t):
    return s + t["bias"][:, numpy.maximum(at.q - at.k, 0)[0, 0]], at.k <= at.q


def share_of_furthest(at, t):
    """FIRE's measure of a distance: its logarithm over that of the row's furthest one."""
    c = abs(t["c"][0])
    return numpy.log(c * abs(at.q - at.k) + 1) / numpy.log(c * numpy.maximum(at.q, abs(t["threshold"][0])) + 1)


@spec
def fire(s, at, p, t):
    x = share_of_furthest(at, t)
    hidden = [numpy.maximum(w * x + b, 0) for w, b in zip(t["w1"], t["b1"])]
    return s + sum(t["w2"][at.h, m] * each for m, each in enumerate(hidden)), at.k <= at.q


@spec(each=lambda s: (numpy.where(s > 0, s, 0) / s.shape[-1], (s > 0) / s.shape[-1]))
def relu(s, at, p, t):
    return s, True


def rectified(s, m):
    exponential, one = numpy.exp(s - m), numpy.exp(-m)
    above = exponential - one
    return numpy.maximum(above, 0), abs(above), exponential * (above > 0), exponential * numpy.sign(above)


@spec(quotient=rectified)
def softpick(s, at, p, t):
    return s, at.k <= at.q


@spec
def alibi_symmetric(s, at, p, t):
    return s - slopes(at.dims.Hq)[at.h] * abs(at.q - at.k), True


@spec
def alibi_slopes(s, at, p, t):
    return s + t["slopes"][at.h] * (at.k - at.q), at.k <= at.q


@spec
def bloom_positions(s, at, p, t):
    return s + t["slopes"][at.h] * t["pos"][:, None, None, :], at.k <= at.q


@spec
def relative_bias(s, at, p, t):
    return s + (at.q - at.k), True


def bucket(distance, exact, buckets, most=128):
    """T5 buckets: one per distance below `exact`; larger distances share the rest logarithmically."""
    far = numpy.log(numpy.maximum(distance, 1) / exact) / math.log(most / exact) * (buckets - exact)
    far = numpy.minimum(exact + far.astype(int), buckets - 1)
    return numpy.where(distance < exact, distance, far)


@spec(scale=1.0)
def t5_bias(s, at, p, t):
    """Half of the 32 buckets are for keys after the query."""
    relative = at.k - at.q
    return s + t["table"][16 * (relative > 0) + bucket(abs(relative), 8, 16), at.h], True


@spec(scale=1.0)
def t5_bias_causal(s, at, p, t):
    past = numpy.maximum(at.q - at.k, 0)
    return s + t["table"][bucket(past, 16, 32), at.h], at.k <= at.q


@spec
def bias_full(s, at, p, t):
    return s + t["bias"], True


@spec
def bias_head(s, at, p, t):
    return s + t["bias"][None], True


@spec
def bias_batch(s, at, p, t):
    return s + t["bias"][:, None], True


@spec
def learned_bias_qk(s, at, p, t):
    return s + t["bias"][None, None], True


@spec
def head_scale(s, at, p, t):
    return s * t["head_scale"][None, :, None, None], True


@spec
def temperature(s, at, p, t):
    return s / p.temperature, True


@spec
def qk_scales(s, at, p, t):
    return s * t["q_scale"][:, :, :, None] * t["k_scale"][:, :, None, :], True


@spec
def checkerboard(s, at, p, t):
    even = (at.q + at.k) % 2 == 0
    return s * numpy.where(even, 2, 0.5), True


@spec
def silu_score(s, at, p, t):
    return s / (1 + numpy.exp(-s)), True


@spec
def squared(s, at, p, t):
    return s**2, True


@spec
def trig(s, at, p, t):
    return numpy.sin(2 * s) / 2 + numpy.tan(at.b), True


@spec
def score_select(s, at, p, t):
    return numpy.maximum(s, 0) + p.slope * numpy.minimum(s, 0), True
