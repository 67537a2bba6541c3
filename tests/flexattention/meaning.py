"""Softmax of scores, for the tests in this folder."""

import numpy

TOLERANCE = 1e-12  # of the largest element


def softmax(scores):
    """Softmax weights and lse; rows without a visible score have 0 and -inf."""
    largest = scores.max(axis=-1, keepdims=True)
    empty = numpy.isneginf(largest)
    weights = numpy.exp(scores - numpy.where(empty, 0, largest))
    sums = numpy.where(empty, 1, weights.sum(axis=-1, keepdims=True))
    return weights / sums, numpy.where(empty, -numpy.inf, largest + numpy.log(sums))[..., 0]
