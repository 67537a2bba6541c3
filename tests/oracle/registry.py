"""Registry of specs, and index arrays for them."""

import typing

import numpy

SPECS = {}
BRANCHES = {}  # by NAME.BRANCH: attentions that are parts of others


class Meaning(typing.NamedTuple):
    """`modify(s, at, p, t)` receives the scaled products s [B, Hq, Sq, Skv], their Place, and the numbers
    and tensors of the spec. It returns the scores, the visible ones (True: all), and optionally the
    sinks."""

    modify: typing.Callable
    scale: float | None  # 1 / sqrt(Dqk) when None
    dropout: float  # probability of dropping a weight; tensor `keep` marks the kept weights
    each: typing.Callable | None  # weights are functions of their scores: f(s) returns f and its derivative
    quotient: typing.Callable | None  # weights are f over the sum of g: of (s, m), both relative to exp(m), and
    # their derivatives by s
    epilogue: typing.Callable | None  # of (o, t): what becomes of o, its derivative by o, and by the element that
    # each place reads of learned tensors, by name
    rows: typing.Callable | None  # f(x, name, t) returns what rows of q or k become, and a function of its gradient
    # that returns that of x and those of learned tensors by name
    quantized: bool  # tensors of 8 bits, with the scales of fp8.py among the tensors
    cache: str | None = None  # k and v of 8 bits: what has a scale in `k_scale` and `v_scale` (cache.py)


def spec(
    function=None, *, name=None, scale=None, dropout=0.0, each=None, quotient=None, epilogue=None, rows=None,
    quantized=False, cache=None,
):
    """Registers a function for the spec `name` (default: the function's name)."""

    def register(modify):
        SPECS[name or modify.__name__] = Meaning(modify, scale, dropout, each, quotient, epilogue, rows, quantized,
                                                    cache)
        return modify

    return register(function) if function else register


def meaning_of(name):
    return SPECS[name] if name in SPECS else BRANCHES[name]


class Place:
    """Indices of batch, head, query and key, each along its axis of [B, Hq, Sq, Skv]."""

    def __init__(self, dims, tensors):
        def along(axis, values):
            values = numpy.asarray(values)
            return values.reshape([values.size if i == axis else 1 for i in range(4)])

        self.dims = dims
        self.b = along(0, numpy.arange(dims.B))
        self.h = along(1, numpy.arange(dims.Hq))
        self.q = along(2, numpy.arange(dims.Sq))
        self.k = along(3, numpy.arange(dims.Skv))
        self.queries = along(0, tensors.get("lengths_q", numpy.full(dims.B, dims.Sq))).astype(int)
        self.keys = along(0, tensors.get("lengths_kv", numpy.full(dims.B, dims.Skv))).astype(int)
        # Bottom right: the last query of a batch is aligned with its last key.
        self.q_aligned = self.q + (self.keys - self.queries)
