#!/usr/bin/env python3
"""Prints results of compare_peers.py as Markdown tables.

    python3 bench/report.py RESULTS.json ... [--also FILE.json] [--chart] [--svg FILE]
    python3 bench/report.py --compare OLD.json NEW.json
    python3 bench/report.py --readme RESULTS.json

A ratio is a peer's time over ours: above 1 attnc is faster. --also adds the peers of another file of the
same shape, marked with a dagger as times of another run. --compare shows how our times changed, old
over new; the exit code is 1 if one became slower by more than 3 % or is no longer served. --readme
prints the table of the README: all variants, and the best form of each library.
"""
import argparse
import math
import pathlib
import sys

import chart
import results

REFERENCE = "flexattention"
AIM = 0.9  # of the fastest peer; rows below it are listed
CHANGED = 0.03
WORDS = ("variant", "direction", "strategy", "fastest peer", "")
MARK = "†"  # suffix of peers of another run


def table(header, rows):
    """A Markdown table. Text columns are left-aligned, the others right-aligned."""
    rule = ["---" if name in WORDS else "---:" for name in header]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def number(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def geometric_mean(values):
    values = [value for value in values if value is not None]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def ratio(over, under):
    return over / under if over and under else None


def with_others(found, other):
    """The results plus the peers of another file of the same shape, marked. Peers measured in this run
    are kept."""
    if found["shape"] != other["shape"]:
        return found
    peers = {results.key(row): row["peers"] for row in other["rows"]}
    rows = []
    for row in found["rows"]:
        added = {name + MARK: ms for name, ms in peers.get(results.key(row), {}).items()
                 if name not in row["peers"]}
        rows.append(row | {"peers": row["peers"] | added})
    return found | {"rows": rows}


def rows_of(found, direction):
    """The rows of a direction, in table order."""
    rows = [row for row in found["rows"] if row["direction"] == direction]
    return sorted(rows, key=lambda row: results.ORDER.index(row["variant"]))


def peers_of(rows):
    return list(dict.fromkeys(name for row in rows for name in row["peers"]))


def reference_of(row):
    """FlexAttention's time, of this run or of another."""
    return row["peers"].get(REFERENCE) or row["peers"].get(REFERENCE + MARK)


def fastest(row):
    """(name, ms) of the fastest peer, or (None, None)."""
    return min(row["peers"].items(), key=lambda item: item[1], default=(None, None))


def ratios(row):
    """Ratios to FlexAttention and to the fastest peer."""
    ours = row.get("ours_ms")
    return ratio(reference_of(row), ours), ratio(fastest(row)[1], ours)


def row_cells(row, peers):
    to_reference, to_fastest = ratios(row)
    return [row["variant"], row["form"] or "-", number(row.get("ours_ms")),
            *(number(row["peers"].get(name)) for name in peers),
            number(to_reference, 2), fastest(row)[0] or "-", number(to_fastest, 2)]


def ratio_table(rows):
    peers = peers_of(rows)
    header = ["variant", "strategy", "ours", *peers, f"to {REFERENCE}", "fastest peer", "to it"]
    to_reference, to_fastest = (map(geometric_mean, zip(*map(ratios, rows))))
    last = ["**geometric mean**", *[""] * (2 + len(peers)), f"**{number(to_reference, 2)}**", "",
            f"**{number(to_fastest, 2)}**"]
    return table(header, [*(row_cells(row, peers) for row in rows), last])


def remarks(rows):
    """Lists the rows below AIM, and the errors."""
    lines = []
    below = [f"{row['variant']} ({ratios(row)[1]:.2f})" for row in rows
             if ratios(row)[1] is not None and ratios(row)[1] < AIM]
    if below:
        lines.append(f"Below {AIM} of the fastest peer: {', '.join(below)}.")
    errors = [f"- {row['variant']}, {name}: {why}"
              for row in rows for name, why in row["errors"].items()]
    return "\n\n".join(filter(None, [*lines, "\n".join(errors)]))


def heading(found):
    torch = f", PyTorch {found['torch']}" if found.get("torch") else ""
    shape = "b{} hq{} hkv{} s{} d{}".format(*found["shape"])
    return f"{found['gpu']}, cuDNN {found['cudnn']}{torch}, {shape} bf16, {found['date'][:10]}"


def notes(found):
    lines = [f"Absent: {name} ({why.splitlines()[0]})."
             for name, why in found.get("absent", {}).items()]
    if any(name.endswith(MARK) for name in peers_of(found["rows"])):
        lines.append(f"{MARK} measured in another run.")
    return "\n".join(lines)


def groups(rows):
    """Groups of bars for charts."""
    return [(row["variant"], ([("ours", row["ours_ms"])] if "ours_ms" in row else [])
             + list(row["peers"].items())) for row in rows]


def report(found, with_chart):
    """The page of one results file."""
    parts = [f"## {heading(found)}", "Times in ms; ratios are a peer's time over ours.", notes(found)]
    for direction in results.DIRECTIONS:
        rows = rows_of(found, direction)
        if not rows:
            continue
        parts += [f"### {direction}", ratio_table(rows), remarks(rows)]
        if with_chart:
            parts.append(f"```text\n{chart.text(groups(rows))}\n```")
    return "\n\n".join(part for part in parts if part)


# The columns of the README, and the peers that are forms of each library.
LIBRARIES = {"FlexAttention": ["flexattention"], "FA-4": ["flash_attn_4", "flash_attn_4_options"],
             "cudnn.flex": ["cudnn_flex"]}
# What the README calls the variants.
PLAIN_NAMES = {
    "noop": "no mask", "causal": "causal", "sliding_window_256": "window of 256, causal",
    "sliding_window_1024": "window of 1,024, causal", "prefix_lm_128": "prefix of 128, then causal",
    "chunked_256": "chunks of 256, causal", "document": "8 documents",
    "document_causal": "8 documents, causal", "natten_13": "neighbourhood 13 x 13",
    "longformer": "window of 256 on each side, 64 global tokens",
    "dilated_window": "window of 512 on each side, every 4th key", "softcap": "softcap",
    "softcap_causal": "softcap, causal", "softcap_window_256": "softcap, window of 256",
    "alibi_causal": "ALiBi, causal", "relative_bias": "score plus distance", "squared": "score squared",
    "checkerboard": "scores doubled and halved in turn", "bias_head": "a bias for every head",
    "bias_full": "a bias for every score"}


def library_cells(row):
    """Our time and that of each library, the fastest in bold; "wrong" for results that differ."""
    times = [row.get("ours_ms"), *(min((row["peers"][form] for form in forms if form in row["peers"]),
                                       default=None) for forms in LIBRARIES.values())]
    best = min([time for time in times if time is not None] + list(row["peers"].values()))
    wrong = [False, *(any(row["errors"].get(form, "").startswith("wrong") for form in forms)
                      for forms in LIBRARIES.values())]
    return ["wrong" if time is None and is_wrong else f"**{number(time)}**" if time == best
            else number(time) for time, is_wrong in zip(times, wrong)]


def readme_table(found):
    """Both directions of all variants, in ms."""
    backward = {row["variant"]: row for row in rows_of(found, "backward")}
    columns = ["attnc", *LIBRARIES]
    header = ["attention", *columns, *(f"backward: {columns[0]}", *columns[1:])]
    lines = [[PLAIN_NAMES[row["variant"]], *library_cells(row), *library_cells(backward[row["variant"]])]
             for row in rows_of(found, "forward")]
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])


def change_flag(change):
    if change is None or abs(change - 1) <= CHANGED:
        return ""
    return "faster" if change > 1 else "SLOWER"


def change_cells(old, new):
    change = ratio(old.get("ours_ms"), new.get("ours_ms"))
    reference = ratio(old["peers"].get(REFERENCE), new["peers"].get(REFERENCE))
    form = new["form"] or "-"
    if old["form"] != new["form"]:
        form = f"{old['form'] or '-'} -> {form}"
    return [new["variant"], new["direction"], form, number(old.get("ours_ms")),
            number(new.get("ours_ms")), number(change, 3), number(reference, 3), change_flag(change)]


def compare(old, new):
    """(page, whether a row became slower or is no longer served)."""
    before = {results.key(row): row for row in old["rows"]}
    rows = [(before[results.key(row)], row) for direction in results.DIRECTIONS
            for row in rows_of(new, direction) if results.key(row) in before]
    header = ["variant", "direction", "strategy", "old", "new", "old / new", f"{REFERENCE}'s", ""]
    changes = [ratio(a.get("ours_ms"), b.get("ours_ms")) for a, b in rows]
    cells = [change_cells(*pair) for pair in rows]
    cells.append(["**geometric mean**", "", "", "", "", f"**{number(geometric_mean(changes))}**", "", ""])
    lost = [f"{a['variant']} {a['direction']}" for a, b in rows if "ours_ms" in a and "ours_ms" not in b]
    parts = [f"old: {heading(old)}  \nnew: {heading(new)}", table(header, cells)]
    if lost:
        parts.append(f"No longer served: {', '.join(lost)}.")
    return "\n\n".join(parts), bool(lost) or "SLOWER" in map(change_flag, changes)


def write_svg(path, found):
    shown = [(f"{row['variant']}, {direction}", bars) for direction in results.DIRECTIONS
             for row, (_, bars) in zip(rows_of(found, direction), groups(rows_of(found, direction)))]
    path.write_text(chart.svg(f"ms, {heading(found)}", shown), encoding="utf-8")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="RESULTS.json")
    parser.add_argument("--also", action="append", default=[], metavar="FILE.json",
                        help="add the peers of another run (repeatable)")
    parser.add_argument("--chart", action="store_true", help="add bar charts as text")
    parser.add_argument("--svg", type=pathlib.Path, metavar="FILE", help="write a bar chart of the first file")
    parser.add_argument("--compare", nargs=2, metavar=("OLD.json", "NEW.json"))
    parser.add_argument("--readme", metavar="RESULTS.json", help="print the table of the README")
    options = parser.parse_args()
    if sum(map(bool, (options.files, options.compare, options.readme))) != 1:
        parser.error("give either results files, --compare OLD.json NEW.json or --readme RESULTS.json")
    return options


def main():
    options = parse()
    if options.compare:
        page, slower = compare(*map(results.load, options.compare))
        print(page)
        return 1 if slower else 0
    if options.readme:
        print(readme_table(results.load(options.readme)))
        return 0
    pages = [results.load(path) for path in options.files]
    for path in options.also:
        pages = [with_others(found, results.load(path)) for found in pages]
    print("\n\n".join(report(found, options.chart) for found in pages))
    if options.svg:
        write_svg(options.svg, pages[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
