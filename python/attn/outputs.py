"""What the names of outputs mean."""
from __future__ import annotations


# Exact names: those of branches, as `amax_far_o`, begin as their users like.
_AMAX = frozenset({"amax_s", "amax_o", "amax_dp", "amax_dq", "amax_dk", "amax_dv"})


def is_amax(name: str) -> bool:
    """Whether it is the largest magnitude in something, f32 [1]: a number for scales, which nobody
    differentiates."""
    return name in _AMAX


def is_o(name: str) -> bool:
    """Whether it is o, o before the epilogue, or that of a branch: all have the same dims and type."""
    return name in ("o", "o_inner") or is_o_of_branch(name)


def is_o_of_branch(name: str) -> bool:
    """Whether it is the o of one of several attentions, which is row-major whatever the layout is."""
    return name.endswith("_o") and not is_amax(name)


def has_layout(name: str) -> bool:
    """Whether it is an o whose order of dimensions is that of q: all are but those of branches."""
    return is_o(name) and not is_o_of_branch(name)


def is_statistic(name: str) -> bool:
    """Whether it is a number for each row that says something of its scores: lse, max, sum_exp, ..."""
    return not is_o(name) and not is_amax(name)


def value_of_nothing(name: str) -> float:
    """What an output, or a gradient, is for a row that sees no key: zero, and a largest score of -inf. (With a
    sink, statistics are other numbers.)"""
    is_logarithm = name.startswith(("lse", "max")) or name.endswith("_lse")
    return float("-inf") if is_logarithm and not is_o(name) else 0.0


NO_KEY_BUT_AN_EPILOGUE = "without a key, o is what the epilogue makes of 0, which is not computed"
NO_KEY_BUT_A_SINK = "without a key, lse and its like are those of the sink, which is not computed"
NO_KEY_NOTES = ["give one key, and hide it by `lengths kv`: lengths_kv=0"]
