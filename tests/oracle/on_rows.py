"""Specs about whole rows (lengths, sinks, dropout), and about sizes and layouts, which are aliases of
other specs."""

import numpy

from on_visibility import causal, last_keys, noop, sliding_window
from registry import spec

# Memory layout and head dimensions do not change values.
for alias in (
    "bhsd gqa_5to1 head_dim_80 head_dim_100 head_dim_256 mla_prefill packed_qkv sbhd strided_views thd"
).split():
    spec(causal, name=alias)
for alias in "packed_kv padding split_kv".split():
    spec(noop, name=alias)
for alias in "fp8_causal fp8_current fp8_training".split():
    spec(causal, name=alias, quantized=True)
spec(noop, name="fp8_gqa", quantized=True)
spec(sliding_window, name="fp8_window", quantized=True)


def past_from_the_end(s, at, p, t):
    """The last query of a batch is aligned with its last key."""
    return s, at.k <= at.q_aligned


for alias in "chunked_prefill decode decode_gqa paged_decode".split():
    spec(past_from_the_end, name=alias)
spec(past_from_the_end, name="cache_fp8", cache="head")
spec(past_from_the_end, name="cache_int8", cache="token_head")


@spec
def gpt_oss(s, at, p, t):
    return s, last_keys(at, p.window), t["sinks"]


@spec
def sink_global(s, at, p, t):
    return s, at.k <= at.q, t["sinks"]


@spec
def softmax_one(s, at, p, t):
    return s, at.k <= at.q, numpy.zeros(at.dims.Hq)


@spec
def merge_by_lse(s, at, p, t):
    return s, at.k + at.dims.Sq // 4 <= at.q


def sigmoid_gate(o, t):
    gate = 1 / (1 + numpy.exp(-t["gate"]))
    return o * gate, gate, {"gate": o * gate * (1 - gate)}


spec(causal, name="gated", epilogue=sigmoid_gate)


@spec(epilogue=sigmoid_gate)
def alphafold_gated(s, at, p, t):
    return s + t["pair"], at.k < t["residues"].reshape(-1, 1, 1, 1)


TENTH = round(0.1 * 2**15) / 2**15  # what random dropout makes of 0.1

spec(noop, name="dropout", dropout=TENTH)
spec(causal, name="dropout_causal", dropout=TENTH)
spec(noop, name="dropout_mask", dropout=0.1)


@spec(dropout=TENTH)
def dropout_softcap_window(s, at, p, t):
    return 50 * numpy.tanh(s / 50), last_keys(at, p.window)
