"""Specs of several attentions: what each is, and how they are combined."""

import typing

import numpy

from on_visibility import last_keys
from registry import BRANCHES, SPECS, Meaning

COMBINED = {}


class Combined(typing.NamedTuple):
    """`inputs`: by branch, the tensors that it reads as q, k and v. The branch that reads none of its own is the
    attention of SPECS, the others are in BRANCHES. `combine` is given the o of each branch by name and the tensors,
    and returns o; `back`, given do too, the gradients of each o, and of learned tensors by name."""

    own: str
    inputs: dict
    combine: typing.Callable
    back: typing.Callable


def combined(name, modify, own, inputs, combine, back):
    """Registers the spec: `modify` by branch."""
    COMBINED[name] = Combined(own, inputs, combine, back)
    for branch, function in modify.items():
        meaning = Meaning(function, None, 0.0, None, None, None, None, False)
        if branch == own:
            SPECS[name] = meaning
        else:
            BRANCHES[f"{name}.{branch}"] = meaning


def causal(s, at, p, t):
    return s, at.k <= at.q


def per_head(values):
    return values.astype(numpy.float64)[None, :, None, None]


combined(
    "differential", {"first": causal, "second": causal}, "first", {"second": {"q": "q2", "k": "k2"}},
    lambda o, t: o["first"] - per_head(t["lam"]) * o["second"],
    lambda d_o, o, t: ({"first": d_o, "second": -per_head(t["lam"]) * d_o},
                       {"lam": -(d_o * o["second"]).sum(axis=(0, 2, 3))}))


def compressed(s, at, p, t):
    """A key stands for 32 positions, 16 apart; all of them are in the past."""
    return s, at.k * 16 + 31 <= at.q


def selected(s, at, p, t):
    """[B, Hkv, Sq, most] blocks, each key head's for all of its queries."""
    chosen = numpy.repeat(t["chosen"], at.dims.Hq // at.dims.Hkv, axis=1)
    is_chosen = (chosen[..., None] == at.k[..., None, :] // int(p.size)).any(axis=3)
    return s, (at.k <= at.q) & is_chosen


def sliding(s, at, p, t):
    return s, last_keys(at, p.window_size)


def opened(t):
    return 1 / (1 + numpy.exp(-t["gates"].astype(numpy.float64)))


GATED = "compressed selected sliding".split()


combined(
    "nsa", {"compressed": compressed, "selected": selected, "sliding": sliding}, "sliding",
    {"compressed": {"k": "k_compressed", "v": "v_compressed"}, "selected": {}},
    lambda o, t: sum(opened(t)[..., i, None] * o[each] for i, each in enumerate(GATED)),
    lambda d_o, o, t: ({each: opened(t)[..., i, None] * d_o for i, each in enumerate(GATED)},
                       {"gates": numpy.stack([(d_o * o[each]).sum(axis=-1) for each in GATED], axis=-1)
                        * opened(t) * (1 - opened(t))}))


def names_of(name):
    """The names in SPECS and BRANCHES of each branch."""
    spec = COMBINED[name]
    return {branch: f"{name}.{branch}" for branch in spec.inputs} | {spec.own: name}


def given(name, branch, dims, tensors):
    """The sizes and tensors of a branch."""
    inputs = COMBINED[name].inputs.get(branch, {})
    tensors = {**tensors, **{each: tensors[by] for each, by in inputs.items()}}
    return {**dims, "Hkv": tensors["k"].shape[1], "Skv": tensors["k"].shape[2]}, tensors
