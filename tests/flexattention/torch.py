"""The part of torch that the mods call, in numpy and double precision."""

import numpy

abs = numpy.abs
arange = numpy.arange
clamp = numpy.clip
cos = numpy.cos
exp = numpy.exp
exp2 = numpy.exp2
log = numpy.log
log2 = numpy.log2
maximum = numpy.maximum
minimum = numpy.minimum
sin = numpy.sin
stack = numpy.stack
tanh = numpy.tanh
tensor = numpy.array
where = numpy.where


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))
