"""Specs whose prologues change rows of q and k."""

import numpy

from registry import spec


def turned(x, tables):
    """Pairs of halves, turned by angles of the position; and the gradient, which is turned back."""
    cos, sin = (numpy.concatenate([table, table], axis=-1) for table in tables)

    def quarter(x, sign):
        first, second = numpy.split(x, 2, axis=-1)
        return sign * numpy.concatenate([-second, first], axis=-1)

    return x * cos + quarter(x, 1) * sin, lambda d: d * cos + quarter(d * sin, -1)


def tables_of(x, t):
    return t["cosines"][: x.shape[2]], t["sines"][: x.shape[2]]


def rotary(x, name, t):
    y, back = turned(x, tables_of(x, t))
    return y, lambda d: (back(d), {})


@spec(rows=rotary)
def rope_causal(s, at, p, t):
    return s, at.k <= at.q


def normed_and_turned(x, name, t):
    weight = t[f"{name}_weight"]
    factor = 1 / numpy.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)
    y, turn_back = turned(x * factor * weight, tables_of(x, t))

    def back(d):
        d = turn_back(d)
        inner = (d * weight * x).mean(axis=-1, keepdims=True)
        d_x = factor * weight * d - x * factor**3 * inner
        return d_x, {f"{name}_weight": (d * x * factor).sum(axis=(0, 1, 2))}

    return y, back


@spec(rows=normed_and_turned)
def qk_norm(s, at, p, t):
    return s, at.k <= at.q


def of_length_1(x, name, t):
    length = numpy.sqrt((x**2).sum(axis=-1, keepdims=True))
    y = x / length
    return y, lambda d: ((d - y * (d * y).sum(axis=-1, keepdims=True)) / length, {})


def factors(t):
    return numpy.exp(numpy.minimum(t["logit_scale"], 4.605170186))[None, :, None, None]


@spec(rows=of_length_1, scale=1.0)
def swin_v2(s, at, p, t):
    return s * factors(t) + t["bias"], True
