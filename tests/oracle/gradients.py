"""The gradients of each spec of the library by explicit formulas, in numpy and double precision.

For a spec that modifies scores, SLOPES has the derivative of the score by its product, derived by hand.
For a spec that learns tensors, LEARNED computes their gradients. A missing entry is an error.
"""

import types

import numpy

import fp8
import of_branches
import oracle
from of_rows import factors
from on_scores import bucket, share_of_furthest
from registry import Place, meaning_of

SLOPES, LEARNED = {}, {}


def slope(*names):
    """Registers a function (s, at, p, t) that returns the slopes of these specs."""

    def register(function):
        SLOPES.update({name: function for name in names})
        return function

    return register


def learned(*names):
    """Registers a function (d_scores, d_sinks, s, at, t) that returns the gradients of learned tensors by
    name, from the gradients of scores [B, Hq, Sq, Skv] and sinks [B, Hq, Sq]."""

    def register(function):
        LEARNED.update({name: function for name in names})
        return function

    return register


@slope(*"alibi alibi_symmetric alibi_slopes bloom_positions relative_bias".split())
@slope("sigmoid", "sigmoid_causal", "hstu", "fox", "alphafold_gated")
@slope(*"fire t5_bias t5_bias_causal bias_full bias_head bias_batch learned_bias_qk".split())
def something_is_added(s, at, p, t):
    return 1.0


@slope("softcap")
def softcap(s, at, p, t):
    return 1 / numpy.cosh(s / p.cap) ** 2


@slope("gemma2_local", "gemma2_global", "dropout_softcap_window")
def softcap_50(s, at, p, t):
    return 1 / numpy.cosh(s / 50) ** 2


@slope("head_scale")
def head_scale(s, at, p, t):
    return t["head_scale"][None, :, None, None]


@slope("swin_v2")
def swin_v2(s, at, p, t):
    return factors(t)


@slope("temperature")
def temperature(s, at, p, t):
    return 1 / p.temperature


@slope("qk_scales")
def qk_scales(s, at, p, t):
    return t["q_scale"][:, :, :, None] * t["k_scale"][:, :, None, :]


@slope("checkerboard")
def checkerboard(s, at, p, t):
    return numpy.where((at.q + at.k) % 2 == 0, 2, 0.5)


@slope("silu_score")
def silu_score(s, at, p, t):
    weight = 1 / (1 + numpy.exp(-s))
    return weight + s * numpy.exp(-s) * weight**2


@slope("squared")
def squared(s, at, p, t):
    return 2 * s


@slope("trig")
def trig(s, at, p, t):
    return numpy.cos(2 * s)


@slope("score_select")
def score_select(s, at, p, t):
    return numpy.where(s < 0, p.slope, 1)


@learned("gpt_oss", "sink_global")
def sinks(d_scores, d_sinks, s, at, t):
    return {"sinks": d_sinks.sum(axis=(0, 2))}


@learned("hstu")
def by_distance(d_scores, d_sinks, s, at, t):
    of_heads = d_scores.sum(axis=0)
    distances = (at.q - at.k)[0, 0]
    return {"bias": numpy.stack([(of_heads * (distances == d)).sum(axis=(1, 2)) for d in range(at.dims.Sq)], axis=1)}


@learned("fire")
def network(d_scores, d_sinks, s, at, t):
    """Derived by hand, where x is a(c, distance) / a(c, far), with a(c, d) = log(|c| d + 1)."""
    c, threshold = t["c"][0], t["threshold"][0]
    far, distance, x = numpy.maximum(at.q, abs(threshold)), abs(at.q - at.k), share_of_furthest(at, t)
    gradients = {"w1": numpy.zeros(32), "b1": numpy.zeros(32), "w2": numpy.zeros_like(t["w2"])}
    dx = 0
    for m in range(32):
        u = t["w1"][m] * x + t["b1"][m]
        du = d_scores * t["w2"][at.h, m] * (u > 0)
        gradients["w1"][m], gradients["b1"][m] = (du * x).sum(), du.sum()
        gradients["w2"][:, m] = (d_scores * numpy.maximum(u, 0)).sum(axis=(0, 2, 3))
        dx = dx + du * t["w1"][m]
    of_far = numpy.log(abs(c) * far + 1)
    by_c = (distance / (abs(c) * distance + 1) - x * far / (abs(c) * far + 1)) / of_far
    by_far = -x / of_far * abs(c) / (abs(c) * far + 1)
    return gradients | {"c": numpy.array([(dx * by_c).sum() * numpy.sign(c)]),
                        "threshold": numpy.array([(dx * by_far * (abs(threshold) > at.q)).sum()
                                                  * numpy.sign(threshold)])}


@learned("fox")
def gates(d_scores, d_sinks, s, at, t):
    """A gate counts in each score whose key is before it, and whose query is not: its logarithm is the sum of their
    gradients."""
    positions = range(at.dims.Skv)
    of_logarithms = [d_scores[:, :, n:, :n].sum(axis=(2, 3)) for n in positions]
    return {"forget": numpy.stack(of_logarithms, axis=2) / (1 + numpy.exp(t["forget"]))}


@learned("alphafold_gated")
def pair(d_scores, d_sinks, s, at, t):
    return {"pair": d_scores.sum(axis=0)}


@learned("qk_norm", "gated")
def elsewhere(d_scores, d_sinks, s, at, t):
    """They are those of rows, which of_rows.py has, or of the epilogue."""
    return {}


@learned("swin_v2")
def factors_and_bias(d_scores, d_sinks, s, at, t):
    by_factor = (d_scores * s).sum(axis=(0, 2, 3)) * factors(t).ravel()
    return {"logit_scale": by_factor * (t["logit_scale"] < 4.605170186), "bias": d_scores.sum(axis=0)}


@learned("learned_bias_qk")
def bias(d_scores, d_sinks, s, at, t):
    return {"bias": d_scores.sum(axis=(0, 1))}


def by_bucket(d_scores, buckets):
    """The gradient of the table [32, Hq], from the bucket of each position."""
    of_heads = d_scores.sum(axis=0)
    table = numpy.zeros((32, of_heads.shape[0]))
    for number in range(32):
        table[number] = (of_heads * (buckets[0, 0] == number)).sum(axis=(1, 2))
    return {"table": table}


@learned("t5_bias")
def t5_table(d_scores, d_sinks, s, at, t):
    relative = at.k - at.q
    return by_bucket(d_scores, 16 * (relative > 0) + bucket(abs(relative), 8, 16))


@learned("t5_bias_causal")
def t5_table_causal(d_scores, d_sinks, s, at, t):
    return by_bucket(d_scores, bucket(numpy.maximum(at.q - at.k, 0), 16, 32))


def slopes_of(name, scaled, at, params, tensors):
    """The derivative of each score by its product; 1 if scores are not modified."""
    if name in SLOPES:
        return SLOPES[name](scaled, at, params, tensors)
    if meaning_of(name).modify(scaled, at, params, tensors)[0] is not scaled:
        raise KeyError(f"tests/oracle/gradients.py has no slope of {name}")
    return 1.0


def summed(values, dims):
    """[B, Hkv, ..] from [B, Hq, ..], summed over the heads of each group."""
    shape = values.shape
    return values.reshape(shape[0], dims["Hkv"], -1, *shape[2:]).sum(axis=2)


def of_quotient(name, values, weights, d_weights, d_lse):
    """The gradients of scores whose weights are f over the sum of g, and lse the logarithm of this sum."""
    (f, g, d_f, d_g), sums, _ = oracle.parts_of(name, values)
    nothing = sums == 0
    of_sum = (weights * d_weights).sum(axis=-1) - numpy.where(nothing, 0, d_lse)
    d_scores = d_f * d_weights - d_g * of_sum[..., None]
    return d_scores / numpy.where(nothing, 1, sums)[..., None]


def of_combined(name, dims, params, tensors, d_o):
    """The gradients of several attentions: of what they share, the sums."""
    spec, result = of_branches.COMBINED[name], {}
    found = oracle.branches(name, dims, params, tensors)
    of_o, of_learned = spec.back(d_o, {branch: each["o"] for branch, each in found.items()}, tensors)
    for branch, of in of_branches.names_of(name).items():
        inputs, given = spec.inputs.get(branch, {}), of_branches.given(name, branch, dims, tensors)
        for key, value in alone(of, given[0], params, given[1], of_o[branch]).items():
            by = inputs.get(key[1:])
            key = f"d_{by}" if by else key
            result[key] = result.get(key, 0) + value
    return result | {f"d_{key}": value for key, value in of_learned.items()}


@learned("differential", "nsa")
def of_branches_alone(d_scores, d_sinks, s, at, t):
    """They are those of what is combined, or of q, k and v, which of_combined has."""
    return {}


def gradients(name, dims, params, tensors, d_o, d_lse=0.0):
    """The gradients dq, dk, dv and d_NAME (learned tensors) of sum(o * d_o) + sum(lse * d_lse), where lse is not
    -inf. Arguments as in oracle.attention."""
    if name in of_branches.COMBINED:
        return of_combined(name, dims, params, tensors, d_o)
    return alone(name, dims, params, tensors, d_o, d_lse)


def alone(name, dims, params, tensors, d_o, d_lse=0.0):
    """The same of one attention."""
    if meaning_of(name).quantized:
        visible = ~numpy.isneginf(oracle.scores(name, dims, params, tensors)[0])
        q, k, v = (tensors[each] for each in "qkv")
        return fp8.gradients((fp8.EXACT,) * 4, q, k, v, d_o, tensors, visible)
    values, sinks_of_rows = oracle.scores(name, dims, params, tensors)
    weights, statistics = oracle.weights_of(name, values, sinks_of_rows)
    kept = oracle.kept(name, tensors)
    rows_made = oracle.made(name, tensors)
    v, k = oracle.repeated(name, "v", dims, tensors), oracle.repeated(name, "k", dims, rows_made)
    of_epilogue = {}
    if meaning_of(name).epilogue:
        rows = oracle.rows_of(dims, tensors)
        o = numpy.einsum("bhqk,bhkd->bhqd", weights * kept, v)
        _, by_o, by_tensors = meaning_of(name).epilogue(o, tensors)
        of_epilogue = {f"d_{key}": numpy.where(rows, d_o * by, 0) for key, by in by_tensors.items()}
        d_o = numpy.where(rows, d_o * by_o, 0)
    d_weights = numpy.einsum("bhqd,bhkd->bhqk", d_o, v) * kept
    if meaning_of(name).each:
        d_scores, d_sinks = oracle.of_visible(values, meaning_of(name).each)[1] * d_weights, None
    elif meaning_of(name).quotient:
        d_scores, d_sinks = of_quotient(name, values, weights, d_weights, d_lse), None
    else:
        nothing = numpy.isneginf(statistics["lse"])
        delta = (weights * d_weights).sum(axis=-1) - numpy.where(nothing, 0, d_lse)
        d_scores = weights * (d_weights - delta[..., None])
        lse = numpy.where(nothing, 0, statistics["lse"])
        d_sinks = -numpy.exp(sinks_of_rows - lse) * delta
    scaled = oracle.products(name, dims, tensors)
    spaces = types.SimpleNamespace(**dims), types.SimpleNamespace(**params)
    at = Place(spaces[0], tensors)
    d_products = d_scores * slopes_of(name, scaled, at, spaces[1], tensors)
    d_products = d_products * oracle.scale_of(name, dims)
    result = {
        "dq": d_products @ k,
        "dk": summed(d_products.swapaxes(2, 3) @ rows_made["q"], dims),
        "dv": summed((weights * kept).swapaxes(2, 3) @ d_o, dims),
    }
    if name in LEARNED:
        of_learned = LEARNED[name](d_scores, d_sinks, scaled, at, tensors)
        result |= {f"d_{key}": value for key, value in of_learned.items()}
    for each in "qk" if meaning_of(name).rows else "":
        _, back = meaning_of(name).rows(tensors[each].astype(numpy.float64), each, tensors)
        result[f"d{each}"], of_learned = back(result[f"d{each}"])
        result |= {f"d_{key}": value for key, value in of_learned.items()}
    return result | of_epilogue
