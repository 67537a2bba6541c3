#!/usr/bin/env python3
"""What each spec of the library means, in numpy and double precision.

Written from the words of the language and of the specs, for comparison with everything that goes
through the compiler: nothing here reads a spec file or uses its representation.

A spec is a function of its name. It gets the scores (scaled products, [B, Hq, Sq, Skv]) and where
they lie, and returns the modified scores and what is visible (True: all of it).

    oracle.py SPEC --dims B=1,Hq=5,... [--param NAME=VALUE]... --in NAME=FILE.npy...
              [--out-o FILE.npy] [--out-lse FILE.npy]
"""

import argparse
import math
import types

import numpy

SPECS = {}


def spec(function):
    SPECS[function.__name__] = function
    return function


class Place:
    """Batch, head, query and key numbers, each along its own axis of [B, Hq, Sq, Skv]."""

    def __init__(self, dims):
        def along(axis, size):
            return numpy.arange(size).reshape([size if i == axis else 1 for i in range(4)])

        self.b = along(0, dims.B)
        self.h = along(1, dims.Hq)
        self.q = along(2, dims.Sq)
        self.k = along(3, dims.Skv)
        self.q_aligned = self.q + (dims.Skv - dims.Sq)  # bottom right: the last row sees all


@spec
def noop(s, at, p, t):
    return s, True


@spec
def causal(s, at, p, t):
    return s, at.q >= at.k


@spec
def causal_bottom_right(s, at, p, t):
    return s, at.q_aligned >= at.k


@spec
def sliding_window(s, at, p, t):
    """A window of w shows w keys, the query's own included."""
    return s, (at.k <= at.q) & (at.k > at.q - p.window)


@spec
def symmetric_window(s, at, p, t):
    return s, (at.k >= at.q - p.window) & (at.k <= at.q + p.window)


@spec
def softcap(s, at, p, t):
    return p.cap * numpy.tanh(s / p.cap), True


@spec
def gemma2_local(s, at, p, t):
    return 50 * numpy.tanh(s / 50), (at.k <= at.q) & (at.k > at.q - p.window)


@spec
def gemma2_global(s, at, p, t):
    return 50 * numpy.tanh(s / 50), at.k <= at.q


@spec
def alibi(s, at, p, t):
    return s + t["slopes"][at.h] * (at.k - at.q), at.k <= at.q


@spec
def relative_bias(s, at, p, t):
    return s + (at.q - at.k), True


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
def head_scale(s, at, p, t):
    return s * t["head_scale"][None, :, None, None], True


@spec
def temperature(s, at, p, t):
    return s / p.temperature, True


@spec
def prefix_lm(s, at, p, t):
    return s, (at.k < p.prefix) | (at.k <= at.q)


@spec
def cross(s, at, p, t):
    return s, True


@spec
def decode(s, at, p, t):
    return s, at.k <= at.q_aligned


@spec
def gqa_5to1(s, at, p, t):
    return s, at.k <= at.q


@spec
def document(s, at, p, t):
    ids = t["doc"]
    return s, ids[at.b, at.q] == ids[at.b, at.k]


def attention(name, dims, params, tensors):
    """o [B, Hq, Sq, Dv] and the natural log of the softmax's denominator, lse [B, Hq, Sq].

    Heads of q share those of k and v in groups. A row that sees nothing has o 0 and lse -inf.
    """
    dims, params = types.SimpleNamespace(**dims), types.SimpleNamespace(**params)
    q = tensors["q"].astype(numpy.float64)
    k, v = (
        numpy.repeat(tensors[key].astype(numpy.float64), dims.Hq // dims.Hkv, axis=1)
        for key in ("k", "v")
    )
    products = numpy.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(dims.Dqk)
    scores, visible = SPECS[name](products, Place(dims), params, tensors)
    scores = numpy.where(numpy.broadcast_to(visible, scores.shape), scores, -numpy.inf)
    largest = scores.max(axis=-1, keepdims=True)
    empty = numpy.isneginf(largest)
    weights = numpy.exp(scores - numpy.where(empty, 0, largest))
    sums = weights.sum(axis=-1, keepdims=True)
    o = numpy.einsum("bhqk,bhkd->bhqd", weights, v) / numpy.where(empty, 1, sums)
    lse = numpy.where(empty, -numpy.inf, largest + numpy.log(numpy.where(empty, 1, sums)))
    return o, lse[..., 0]


def parse_pairs(pairs, convert):
    return {name: convert(value) for name, value in (pair.split("=", 1) for pair in pairs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec", choices=sorted(SPECS))
    parser.add_argument("--dims", required=True, help="B=1,Hq=5,Hkv=1,Sq=129,Skv=777,Dqk=64,Dv=64")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--in", dest="inputs", action="append", default=[], metavar="NAME=FILE.npy")
    parser.add_argument("--out-o", metavar="FILE.npy")
    parser.add_argument("--out-lse", metavar="FILE.npy")
    options = parser.parse_args()
    o, lse = attention(
        options.spec,
        parse_pairs(options.dims.split(","), int),
        parse_pairs(options.param, float),
        parse_pairs(options.inputs, numpy.load),
    )
    for path, values in ((options.out_o, o), (options.out_lse, lse)):
        if path:
            numpy.save(path, values)


if __name__ == "__main__":
    main()
