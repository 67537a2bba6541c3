#!/usr/bin/env python3
"""Fits the figures of predicted times to the table of what was measured, and says how far predictions are from it.

    python3 bench/fit.py [--predictions build/bench/predictions] [--table FILE.jsonl] [--check] [--rows] [--steps 12]

The table (bench/results/predictions) has what measure.py wrote; rows may be added to it. Rows of the set "fit" count
for the fit, those of "held" are only compared. The figures are in compiler/target: figures.def has their names and
meaning, and figure_values.def, which this rewrites (not with --check), their values. The formulas are those of the
compiler alone: `predictions` plans each row once, and predicts its time with each set of figures.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess

import numpy

SOURCE = pathlib.Path(__file__).resolve().parent.parent
MEASURED = SOURCE / "compiler" / "planner" / "measured.def"
VALUES = SOURCE / "compiler" / "target" / "figure_values.def"
TABLE = SOURCE / "bench" / "results" / "predictions" / "NVIDIA_H200-cudnn9.19.0.jsonl"
PULL = 0.05  # of a figure back to where it was, against an error of a row as large
STEP = 0.02  # of a figure, by which slopes are found
PAIR = 1.2  # times as much as an error of a row counts one of the ratio of both engines
LARGE = 0.1  # errors above this count by their square root


class Predictions:
    """The compiler's predictions of the rows of a table, for any figures."""

    def __init__(self, program, table):
        self.process = subprocess.Popen([program, table], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        first = json.loads(self.process.stdout.readline())
        self.figures = first["figures"]
        self.rows = first["rows"]

    def of(self, values):
        self.process.stdin.write(" ".join(f"{value:.9g}" for value in values) + "\n")
        self.process.stdin.flush()
        return numpy.array(json.loads(self.process.stdout.readline()))


class Table:
    """What was measured, as far as it could be predicted."""

    def __init__(self, path, predictions):
        measured, chosen = {}, {}
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.get("engine") == "auto":
                chosen[row["name"], row["direction"]] = row["takes"]
            if "measured_ms" in row:
                measured[row["name"], row["engine"], row["direction"]] = row
        self.rows = [measured[row["name"], row["engine"], row["direction"]] | row
                     for row in predictions.rows if "error" not in row]
        self.failed = [row for row in predictions.rows if "error" in row]
        self.chosen = chosen
        self.ms = numpy.array([row["measured_ms"] for row in self.rows])
        of = {(row["name"], row["direction"], row["engine"]): i for i, row in enumerate(self.rows)}
        self.pairs = [(i, of[name, direction, "cudnn"]) for (name, direction, engine), i in of.items()
                      if engine == "native" and (name, direction, "cudnn") in of]
        own = [row["set"] == "fit" for row in self.rows]
        self.fit = numpy.array(own + [own[i] for i, _ in self.pairs])


def errors_of(predicted, table):
    """Errors of each row, and of the ratio of both engines, which decides which one is taken."""
    rows = numpy.log(predicted / table.ms)
    return numpy.concatenate([rows, [PAIR * (rows[native] - rows[cudnn]) for native, cudnn in table.pairs]])


def weights_of(errors, table):
    size = numpy.maximum(numpy.abs(errors), 1e-9)
    return numpy.where(table.fit, numpy.minimum(1, numpy.sqrt(LARGE / size)), 0)


def fitted(predictions, table, steps, only):
    """Levenberg and Marquardt's method on the logarithms of the figures, or of some of them."""
    names = list(predictions.figures)
    changing = [i for i, name in enumerate(names) if not only or name in only]
    start = numpy.log([predictions.figures[name] for name in names])
    at, damping = start.copy(), 1e-2
    errors = errors_of(predictions.of(numpy.exp(at)), table)

    def loss(errors, at):
        size = numpy.abs(errors[table.fit])
        robust = numpy.where(size < LARGE, size**2, LARGE**0.5 * size**1.5)
        return robust.sum() + PULL**2 * ((at - start)**2).sum()

    best = loss(errors, at)
    for step in range(steps):
        slopes = numpy.zeros((len(errors), len(names)))
        for i in changing:
            moved = at.copy()
            moved[i] += STEP
            slopes[:, i] = (errors_of(predictions.of(numpy.exp(moved)), table) - errors) / STEP
        weighted = weights_of(errors, table)[:, None] * slopes
        squares = weighted.T @ slopes + PULL**2 * numpy.eye(len(names))
        gradient = weighted.T @ errors + PULL**2 * (at - start)
        while damping < 1e6:
            change = numpy.linalg.solve(squares + damping * numpy.diag(numpy.diag(squares)), -gradient)
            candidate = at + numpy.clip(change, -0.5, 0.5)
            tried = errors_of(predictions.of(numpy.exp(candidate)), table)
            if (now := loss(tried, candidate)) < best:
                at, errors, damping = candidate, tried, damping / 5
                gain, best = best - now, now
                break
            damping *= 4
        else:
            break
        print(f"step {step}: loss {best:.4f}", flush=True)
        if gain < 1e-4 * best:
            break
    return dict(zip(names, numpy.exp(at)))


def groups_of(table):
    """Rows by what is claimed of them."""
    groups = {}
    for i, row in enumerate(table.rows):
        direction = "" if row["group"] == "few_rows" else f" {row['direction']}"
        for of in (row["set"], "all"):
            groups.setdefault(f"{row['group']}{direction}, {row['engine']}, {of}", []).append(i)
    return {name: rows for name, rows in sorted(groups.items()) if rows}


def print_errors(predicted, table):
    off = predicted / table.ms - 1
    print(f"{'rows':44}{'count':>6}{'median %':>10}{'worst %':>9}")
    for name, rows in groups_of(table).items():
        size = 100 * numpy.abs(off[rows])
        print(f"{name:44}{len(rows):6}{statistics.median(size):10.1f}{size.max():9.1f}")


def print_choices(predicted, table):
    """Where what is taken was measured to be slower: what `measure.py --auto` saw chosen, or else what is predicted
    to be faster."""
    pairs = {}
    for i, row in enumerate(table.rows):
        pairs.setdefault((row["name"], row["direction"]), {})[row["engine"]] = i
    wrong = 0
    for (name, direction), engines in pairs.items():
        if len(engines) < 2:
            continue
        chosen = table.chosen.get((name, direction))
        taken = engines[chosen] if chosen else min(engines.values(), key=lambda i: predicted[i])
        behind = table.ms[taken] / min(table.ms[i] for i in engines.values()) - 1
        if behind > 0.05:
            wrong += 1
            print(f"{name} {direction}: {table.rows[taken]['engine']} is {100 * behind:.0f} % behind")
    print(f"{wrong} of {len(pairs)} choices are more than 5 % behind")


def print_rows(predicted, table):
    order = numpy.argsort(-numpy.abs(numpy.log(predicted / table.ms)))
    for i in order:
        row = table.rows[i]
        print(f"{predicted[i] / table.ms[i]:6.2f} {row['engine']:7}{row['direction']} {table.ms[i]:9.4f} {row['set']:5}"
              f"{row['strategy']:10} {row['name']}")


def rewrite(figures):
    def value(match):
        return f"ATTN_VALUE({match[1]}, {figures[match[1]]:.4g})"

    text = VALUES.read_text(encoding="utf-8")
    VALUES.write_text(re.sub(r"^ATTN_VALUE\((\w+), [^)]*\)", value, text, flags=re.MULTILINE), encoding="utf-8")


def rewrite_measured(table):
    """The kinds of attentions that the table has."""
    kinds = {}
    for row in table.rows:
        kinds.setdefault(row["kind"], []).append(row)
    lines = ["// ATTN_MEASURED(kind, least_depth, most_depth, most_rows, most_keys, most_heads, features): bench/fit.py."]
    for kind, rows in sorted(kinds.items()):
        of = [row["dims"] for row in rows]
        depths = [each[name] for each in of for name in ("Dqk", "Dv")]
        most = [max(each[name] for each in of) for name in ("Sq", "Skv")]
        heads = max(each["B"] * each["Hq"] for each in of)
        features = ", ".join(sorted({feature for row in rows for feature in row["features"]}))
        lines.append(f'ATTN_MEASURED("{kind}", {min(depths)}, {max(depths)}, {most[0]}, {most[1]}, {heads},\n'
                     f'              "{features}")')
    MEASURED.write_text("\n".join([*lines, "#undef ATTN_MEASURED", ""]), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--predictions", default="build/bench/predictions")
    parser.add_argument("--table", type=pathlib.Path, default=TABLE)
    parser.add_argument("--check", action="store_true", help="compare alone")
    parser.add_argument("--rows", action="store_true", help="also print all rows, the worst first")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--only", nargs="+", metavar="FIGURE", help="fit these figures, and keep the others")
    options = parser.parse_args()
    predictions = Predictions(options.predictions, options.table)
    table = Table(options.table, predictions)
    figures = predictions.figures
    if not options.check:
        figures = fitted(predictions, table, options.steps, options.only)
        rewrite(figures)
        rewrite_measured(table)
    predicted = predictions.of(list(figures.values()))
    print_errors(predicted, table)
    print_choices(predicted, table)
    if options.rows:
        print_rows(predicted, table)
    for row in table.failed:
        print(f"{row['name']} {row['engine']} {row['direction']}: {row['error']}")


if __name__ == "__main__":
    main()
