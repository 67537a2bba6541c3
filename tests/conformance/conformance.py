#!/usr/bin/env python3
"""Compares `attnc run --backend reference --unrounded` with the numpy oracle, outputs and gradients, at
four shapes.

    conformance.py ATTNC SPEC.attn

The two are independent: the oracle is written from the language description, and both read the same
.npy files. With random dropout the oracle receives the kept weights, which attnc reveals when v is the
identity.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import gradients  # noqa: E402
import of_branches  # noqa: E402
import oracle  # noqa: E402
from inputs import SHAPES, extras_of, sizes_of, tensors_of  # noqa: E402

TOLERANCE = 1e-12  # relative to the largest element
OF_LSE = {"merge_by_lse"}  # specs whose `grad` clause has lse


class Attnc:
    """Runs attnc's reference on the spec at one shape."""

    def __init__(self, attnc, path, bindings):
        self.command = [attnc, "run", str(path), "--backend", "reference", "--unrounded"]
        self.bindings = bindings

    def run(self, inputs, names, options=(), **other_bindings):
        """Returns the named outputs. Inputs are arrays or numbers."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            command = self.command + list(options)
            for key, value in {**self.bindings, **other_bindings}.items():
                command += ["--bind", f"{key}={value}"]
            for key, value in inputs.items():
                if isinstance(value, numpy.ndarray):
                    numpy.save(folder / f"{key}.npy", value)
                    value = f"@{folder / key}.npy"
                command += ["--in", f"{key}={value}"]
            for key in names:
                command += ["--out", f"{key}={folder / key}_out.npy"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
            if done.returncode != 0:
                words = f"{' '.join(command)}\nexit code {done.returncode}\n{done.stderr}"
                raise SystemExit(words)
            return {key: numpy.load(folder / f"{key}_out.npy") for key in names}


def kept(attnc, inputs, dims):
    """[B, Hq, Sq, Skv]: whether dropout keeps each weight."""
    identity = numpy.tile(numpy.eye(dims["Skv"]), (dims["B"], dims["Hkv"], 1, 1))
    return attnc.run({**inputs, "v": identity}, ["o"], Dv=dims["Skv"])["o"] > 0


def check_dropout(attnc, inputs, dims, extras, visible):
    """Checks share and reproducibility of dropout. Returns the reason of a failure, or None."""
    keep = kept(attnc, inputs, dims)
    share, count = keep[visible].mean(), visible.sum()
    allowed = 5 * numpy.sqrt(extras.dropout * (1 - extras.dropout) / count)
    if abs(share - (1 - extras.dropout)) > allowed:
        return f"keeps {share:.4f} of {count}"
    if (kept(attnc, inputs, dims) != keep).any():
        return "keeps different weights in a second run"
    for name in ("seed", "offset"):
        if (kept(attnc, {**inputs, name: inputs[name] + 1}, dims) == keep).all():
            return f"keeps the same with another {name}"
    return None


def difference(actual, expected):
    """The reason why the two differ, or None."""
    if actual.dtype != numpy.float64 or actual.shape != expected.shape:
        return f"is {actual.dtype}{list(actual.shape)}, not float64{list(expected.shape)}"
    if numpy.isnan(actual).any() or numpy.isnan(expected).any():
        return "has NaN"
    hidden = numpy.isneginf(expected)
    if (numpy.isneginf(actual) != hidden).any():
        return "has -inf at other places"
    actual, expected = (numpy.where(hidden, 0, values) for values in (actual, expected))
    error, largest = numpy.abs(actual - expected).max(), numpy.abs(expected).max()
    relative = error / largest if largest > 0 else error
    return f"is off by {relative:.3g}" if not relative <= TOLERANCE else None


def check_gradients(attnc, inputs, expected, through_lse=False):
    """{gradient: reason why it differs, or None}."""
    options = ["--direction", "bwd"]
    if through_lse:
        names = [key.removeprefix("d_") if key.startswith("d_") else key[1:] for key in expected]
        options += ["--gradients", ",".join([*names, "lse"])]
    actual = attnc.run(inputs, expected, options)
    title = " through lse" if through_lse else ""
    return {key + title: difference(actual[key], expected[key]) for key in expected}


def gradient_of(lse, seed):
    """A gradient of lse: NaN where lse is -inf, which no result may depend on."""
    d_lse = numpy.random.default_rng(seed).normal(size=lse.shape)
    return numpy.where(numpy.isneginf(lse), numpy.nan, d_lse)


def check(attnc, path, label, seed):
    name = path.stem
    extras, (dims, constants) = extras_of(name), sizes_of(name, label)
    tensors = tensors_of(name, dims, numpy.random.default_rng(seed))
    inputs = {**tensors, **extras.params}
    attnc = Attnc(attnc, path, {**dims, **constants})
    reasons = {}
    if extras.dropout:
        inputs |= {"seed": 1234, "offset": 56}
        tensors["keep"] = kept(attnc, inputs, dims)
    expected = oracle.attention(name, dims, {**constants, **extras.params}, tensors)
    if extras.dropout:
        values, _ = oracle.scores(name, dims, constants, tensors)
        visible = ~numpy.isneginf(values)
        reasons["dropout"] = check_dropout(attnc, inputs, dims, extras, visible)
    actual = attnc.run(inputs, extras.outputs, ["--outputs", ",".join(extras.outputs)])
    for key in extras.outputs:
        reasons[key] = difference(actual[key], expected[key])
    if extras.trained:
        d_o = numpy.random.default_rng(seed + 100).normal(size=expected["o"].shape)
        given = {**constants, **extras.params}
        if name not in OF_LSE:
            of_inputs = gradients.gradients(name, dims, given, tensors, d_o)
            reasons |= check_gradients(attnc, {**inputs, "do": d_o}, of_inputs)
        has_lse = name not in of_branches.COMBINED and not oracle.SPECS[name].each
        if has_lse and not oracle.SPECS[name].quantized:
            d_lse = gradient_of(expected["lse"], seed + 200)
            of_inputs = gradients.gradients(name, dims, given, tensors, d_o, d_lse)
            reasons |= check_gradients(attnc, {**inputs, "do": d_o, "dlse": d_lse}, of_inputs, through_lse=True)
    if label == "empty rows":
        has_empty = numpy.isneginf(expected["max"]).any()
        reasons["rows"] = None if has_empty == extras.empty else f"empty rows: {has_empty}"
    for key, reason in reasons.items():
        print(f"{name}, {label}: {key} {reason or 'agrees'}")
    return sum(reason is not None for reason in reasons.values())


def main():
    attnc, path = sys.argv[1], pathlib.Path(sys.argv[2])
    if path.stem not in oracle.SPECS:
        raise SystemExit(f"tests/oracle has no spec {path.stem}")
    failures = sum(check(attnc, path, label, seed) for seed, label in enumerate(SHAPES))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
