#!/usr/bin/env python3
"""Compares `attnc run --backend reference --unrounded` with the numpy oracle, at three shapes.

    conformance.py ATTNC SPEC.attn

The two share nothing but the spec's name: the oracle is written from words, and the inputs go to
both as .npy files.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
import oracle  # noqa: E402

TOLERANCE = 1e-12  # relative to the largest element

SHAPES = {
    "odd": dict(B=1, Hq=5, Hkv=1, Sq=129, Skv=777, Dqk=40, Dv=72),
    "one row": dict(B=2, Hq=3, Hkv=3, Sq=1, Skv=97, Dqk=64, Dv=64),
    "grouped heads": dict(B=2, Hq=6, Hkv=2, Sq=96, Skv=64, Dqk=32, Dv=32),
}


def reals(*names):
    return lambda dims, rng: rng.normal(size=[dims[name] for name in names])


def ids(*names):
    """Ascending runs of a few equal ids, as documents are packed."""
    return lambda dims, rng: numpy.sort(
        rng.integers(0, 6, size=[dims[name] for name in names]), axis=-1
    ).astype(numpy.int32)


# What a spec has besides q, k and v: constants of the spec (--bind), scalars and tensors (--in).
# Constants are smaller than the specs' own, so that they matter at these shapes.
EXTRAS = {
    "sliding_window": dict(bind=dict(window=33)),
    "symmetric_window": dict(bind=dict(window=20)),
    "softcap": dict(bind=dict(cap=2.5)),
    "gemma2_local": dict(bind=dict(window=40)),
    "alibi": dict(tensors=dict(slopes=reals("Hq"))),
    "bias_full": dict(tensors=dict(bias=reals("B", "Hq", "Sq", "Skv"))),
    "bias_head": dict(tensors=dict(bias=reals("Hq", "Sq", "Skv"))),
    "bias_batch": dict(tensors=dict(bias=reals("B", "Sq", "Skv"))),
    "head_scale": dict(tensors=dict(head_scale=reals("Hq"))),
    "temperature": dict(params=dict(temperature=0.7)),
    "prefix_lm": dict(bind=dict(prefix=30)),
    "document": dict(tensors=dict(doc=ids("B", "Skv"))),
}
# Documents are of one sequence: its rows are its columns.
SQUARE = {"document"}
# These write `D`, which is a size only where both head dimensions are one.
ONE_HEAD_DIM = {"gemma2_local", "gemma2_global"}


def make_inputs(name, dims, rng):
    shapes = dict(
        q=("B", "Hq", "Sq", "Dqk"), k=("B", "Hkv", "Skv", "Dqk"), v=("B", "Hkv", "Skv", "Dv")
    )
    tensors = {key: reals(*names)(dims, rng) for key, names in shapes.items()}
    for key, make in EXTRAS.get(name, {}).get("tensors", {}).items():
        tensors[key] = make(dims, rng)
    return tensors


def run_attnc(attnc, path, dims, extras, tensors, folder):
    command = [attnc, "run", str(path), "--backend", "reference", "--unrounded"]
    for key, value in [*dims.items(), *extras.get("bind", {}).items()]:
        command += ["--bind", f"{key}={value}"]
    for key, value in extras.get("params", {}).items():
        command += ["--in", f"{key}={value}"]
    for key, values in tensors.items():
        numpy.save(folder / f"{key}.npy", values)
        command += ["--in", f"{key}=@{folder / key}.npy"]
    for key in ("o", "lse"):
        command += ["--out", f"{key}={folder / key}.npy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stderr}")
    return numpy.load(folder / "o.npy"), numpy.load(folder / "lse.npy")


def difference(actual, expected):
    """Why the two differ, or nothing."""
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


def check(attnc, path, label, dims, seed):
    name = path.stem
    extras = EXTRAS.get(name, {})
    if name in SQUARE:
        dims = dict(dims, Sq=dims["Skv"])
    if name in ONE_HEAD_DIM:
        dims = dict(dims, Dv=dims["Dqk"])
    tensors = make_inputs(name, dims, numpy.random.default_rng(seed))
    params = {**extras.get("bind", {}), **extras.get("params", {})}
    expected = oracle.attention(name, dims, params, tensors)
    with tempfile.TemporaryDirectory() as folder:
        actual = run_attnc(attnc, path, dims, extras, tensors, pathlib.Path(folder))
    failures = 0
    for key, got, wanted in zip(("o", "lse"), actual, expected):
        reason = difference(got, wanted)
        failures += reason is not None
        print(f"{name}, {label}: {key} {reason or 'agrees'}")
    return failures


def main():
    attnc, path = sys.argv[1], pathlib.Path(sys.argv[2])
    if path.stem not in oracle.SPECS:
        raise SystemExit(f"tests/oracle/oracle.py has no {path.stem}")
    failures = 0
    for seed, (label, dims) in enumerate(SHAPES.items()):
        failures += check(attnc, path, label, dims, seed)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
