#!/usr/bin/env python3
"""Reference semantics of each spec of the library, in numpy and double precision.

Written from the descriptions of the language and the specs, independent of the compiler: nothing here
reads a spec file.

    oracle.py SPEC --dims B=1,Hq=5,... [--param NAME=VALUE]... --in NAME=FILE.npy...
              [--out NAME=FILE.npy]...
"""

import argparse
import math
import types

import numpy

import cache
import fp8
import of_branches
import of_lists  # noqa: F401  (fills SPECS)
import of_rows  # noqa: F401  (fills SPECS)
import on_rows  # noqa: F401  (fills SPECS)
import on_scores  # noqa: F401
import on_visibility  # noqa: F401
from registry import SPECS, Place, meaning_of


def softmax(values, sinks):
    """Softmax weights, and statistics of each row: lse, lse_without_sink, max and sum_exp.

    A sink is added to the denominator, and so to lse, but not to the others. A row without a
    visible score has weights 0, max and lse_without_sink -inf and sum_exp 0.
    """
    largest = values.max(axis=-1)
    shift = numpy.where(numpy.isneginf(largest), 0, largest)
    exponentials = numpy.exp(values - shift[..., None])
    sums = exponentials.sum(axis=-1)
    denominator = sums + numpy.exp(sinks - shift)
    with numpy.errstate(divide="ignore"):
        lse, lse_without_sink = shift + numpy.log(denominator), shift + numpy.log(sums)
    weights = exponentials / numpy.where(denominator == 0, 1, denominator)[..., None]
    statistics = {"lse": lse, "lse_without_sink": lse_without_sink, "max": largest, "sum_exp": sums}
    return weights, statistics


def of_visible(values, function, *arguments):
    """What the function returns for each score, 0 for those that are hidden, -inf."""
    hidden = numpy.isneginf(values)
    return [numpy.where(hidden, 0, of) for of in function(numpy.where(hidden, 0, values), *arguments)]


def parts_of(name, values):
    """Parts of weights that are f over the sum of g along the row: f and g relative to exp(m), their derivatives by
    the score, the sum of g, and m."""
    largest = numpy.maximum(values.max(axis=-1), 0)
    parts = of_visible(values, meaning_of(name).quotient, largest[..., None])
    return parts, parts[1].sum(axis=-1), largest


def quotient(name, values):
    (f, *_), sums, largest = parts_of(name, values)
    with numpy.errstate(divide="ignore"):
        lse = largest + numpy.log(sums)
    return f / numpy.where(sums == 0, 1, sums)[..., None], {"lse": lse, "max": values.max(axis=-1)}


def weights_of(name, values, sinks):
    """The weights, and statistics of each row: of weights that depend on their score alone only max."""
    if meaning_of(name).each:
        return of_visible(values, meaning_of(name).each)[0], {"max": values.max(axis=-1)}
    if meaning_of(name).quotient:
        return quotient(name, values)
    return softmax(values, sinks)


def scale_of(name, dims):
    scale = meaning_of(name).scale
    return 1 / math.sqrt(dims["Dqk"]) if scale is None else scale


def repeated(spec, name, dims, tensors):
    """k or v in double precision, with its scales, repeated to Hq heads. Without v, it is the first columns
    of k."""
    x = (tensors[name] if name in tensors else tensors["k"][..., : dims["Dv"]]).astype(numpy.float64)
    if meaning_of(spec).cache:
        x = x * cache.scales(meaning_of(spec).cache, tensors[f"{name}_scale"])
    return numpy.repeat(x, dims["Hq"] // dims["Hkv"], axis=1)


def made(name, tensors):
    """The tensors with q and k after the prologues of the spec."""
    if meaning_of(name).rows is None:
        return tensors
    rows = {each: meaning_of(name).rows(tensors[each].astype(numpy.float64), each, tensors)[0] for each in "qk"}
    return {**tensors, **rows}


def products(name, dims, tensors):
    """Scaled products q k^T, [B, Hq, Sq, Skv]."""
    tensors = made(name, tensors)
    q = tensors["q"].astype(numpy.float64)
    k = repeated(name, "k", dims, tensors)
    return numpy.einsum("bhqd,bhkd->bhqk", q, k) * scale_of(name, dims)


def scores(name, dims, params, tensors):
    """Scores [B, Hq, Sq, Skv], -inf where hidden, and sinks [.., .., Sq], -inf if there is none."""
    scaled = products(name, dims, tensors)
    dims, params = types.SimpleNamespace(**dims), types.SimpleNamespace(**params)
    at = Place(dims, tensors)
    values, visible, *sinks = meaning_of(name).modify(scaled, at, params, tensors)
    is_row = at.q < at.queries
    values = numpy.where(visible & is_row & (at.k < at.keys), values, -numpy.inf)
    sinks = sinks[0][None, :, None] if sinks else -numpy.inf
    return values, numpy.where(is_row[..., 0], sinks, -numpy.inf)


def kept(name, tensors):
    """Dropout factor of each weight: 0 or 1 / (1 - p)."""
    dropout = meaning_of(name).dropout
    return tensors["keep"] / (1 - dropout) if dropout else 1.0


def attention(name, dims, params, tensors):
    """o [B, Hq, Sq, Dv]; statistics [B, Hq, Sq], of weights that depend on their score alone only max.

    Heads of q share heads of k and v in groups. The optional tensors lengths_q and lengths_kv [B] give
    the rows and keys of each batch; rows beyond have o 0 and lse -inf, even with a sink. With scales, what
    they make of o, of the amax outputs too, as if no value were rounded.
    """
    if meaning_of(name).quantized:
        return in_8_bits(name, dims, params, tensors)
    if name in of_branches.COMBINED:
        found = branches(name, dims, params, tensors)
        own = of_branches.COMBINED[name].own
        o = of_branches.COMBINED[name].combine({branch: each["o"] for branch, each in found.items()}, tensors)
        return {**found[own], "o_inner": found[own]["o"], "o": o}
    return alone(name, dims, params, tensors)


def branches(name, dims, params, tensors):
    """What each branch makes, by its name."""
    found = {}
    for branch, of in of_branches.names_of(name).items():
        own_dims, own_tensors = of_branches.given(name, branch, dims, tensors)
        found[branch] = alone(of, own_dims, params, own_tensors)
    return found


def alone(name, dims, params, tensors):
    """The same of one attention."""
    weights, outputs = weights_of(name, *scores(name, dims, params, tensors))
    v = repeated(name, "v", dims, tensors)
    weights = weights * kept(name, tensors)
    o = numpy.einsum("bhqk,bhkd->bhqd", weights, v)
    if meaning_of(name).epilogue:
        outputs = {"o_inner": o, **outputs}
        o = numpy.where(rows_of(dims, tensors), meaning_of(name).epilogue(o, tensors)[0], 0)
    return {"o": o, **outputs}


def rows_of(dims, tensors):
    """[B, 1, Sq, 1]: whether there is such a row."""
    at = Place(types.SimpleNamespace(**dims), tensors)
    return at.q < at.queries


def in_8_bits(name, dims, params, tensors):
    values, _ = scores(name, dims, params, tensors)
    q, k, v = (tensors[each] for each in "qkv")
    hidden = numpy.isneginf(values)

    def hide(s):
        return numpy.where(hidden, -numpy.inf, s)

    found = fp8.attention(fp8.EXACT, fp8.EXACT, q, k, v, tensors, hide)
    return {**found, "max": values.max(axis=-1)}


def parse_pairs(pairs, convert):
    return {name: convert(value) for name, value in (pair.split("=", 1) for pair in pairs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec", choices=sorted(SPECS))
    parser.add_argument("--dims", required=True, help="B=1,Hq=5,Hkv=1,Sq=129,Skv=777,Dqk=64,Dv=64")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--in", dest="inputs", action="append", default=[], metavar="NAME=FILE.npy")
    parser.add_argument("--out", action="append", default=[], metavar="NAME=FILE.npy")
    options = parser.parse_args()
    outputs = attention(
        options.spec,
        parse_pairs(options.dims.split(","), int),
        parse_pairs(options.param, float),
        parse_pairs(options.inputs, numpy.load),
    )
    for name, path in parse_pairs(options.out, str).items():
        numpy.save(path, outputs[name])


if __name__ == "__main__":
    main()
