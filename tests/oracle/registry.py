"""The list of specs, and the places that they speak of."""

import typing

import numpy

SPECS = {}


class Meaning(typing.NamedTuple):
    """`modify(s, at, p, t)` gets the scaled products s [B, Hq, Sq, Skv], where they lie, the numbers
    and the tensors given to the spec. It returns the scores and what is visible (True: all of it),
    and the sinks, if there are any."""

    modify: typing.Callable
    scale: float | None  # 1 / sqrt(Dqk) when None
    dropout: float  # the share of weights that is dropped; tensor `keep` has those that are not


def spec(function=None, *, name=None, scale=None, dropout=0.0):
    """Registers a function under the name of a spec, which is its own unless another is given."""

    def register(modify):
        SPECS[name or modify.__name__] = Meaning(modify, scale, dropout)
        return modify

    return register(function) if function else register


class Place:
    """Batch, head, query and key numbers, each along its own axis of [B, Hq, Sq, Skv]."""

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
        # Bottom right: the last query of a batch stands at its last key.
        self.q_aligned = self.q + (self.keys - self.queries)
