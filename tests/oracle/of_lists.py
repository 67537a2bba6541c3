"""Specs of latent caches: keys that hold their values, and keys that lists name."""

import numpy

from on_rows import past_from_the_end
from registry import spec

LATENT_SCALE = 1 / 192**0.5

spec(past_from_the_end, name="mla_latent", scale=LATENT_SCALE)


# Rows are compared as they are given: row_formats_test.py compares what they are stored as.
@spec(scale=LATENT_SCALE, name="chosen_fp8")
@spec(scale=LATENT_SCALE)
def chosen_tokens(s, at, p, t):
    """A key that is listed n times has the weight of n keys: its score grows by log n."""
    times = numpy.zeros((at.dims.B, 1, at.dims.Sq, at.dims.Skv))
    for b, q in numpy.ndindex(at.dims.B, at.dims.Sq):
        listed = t["chosen"][b, q, : int(t["count"][b, q])].astype(int)
        numpy.add.at(times[b, 0, q], listed[listed >= 0], 1)
    with numpy.errstate(divide="ignore"):
        return s + numpy.log(times), (times > 0) & past_from_the_end(s, at, p, t)[1]
