#!/usr/bin/env python3
"""Predicts one attention on many GPUs, beside the classic schemes: a Markdown table. Needs no GPU.

    python3 bench/ranks_predicted.py [--attnc build/attnc] [--size 524288] [--ranks 8 64 1024] [--masks causal ...]

Each cell: balance (work of the rank with most, of the mean), megabytes that the rank with most receives forward,
and how many times as fast as one GPU.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import ranks_plans

SCHEMES = ("ring", "zigzag ring", "Ulysses", "all-gather")


def explained(options, mask, ranks, folder):
    case = ranks_plans.Case(mask, options.size, options.heads, options.key_heads, options.depth, ranks)
    plan, = ranks_plans.plans_of(case, "divided")
    source = folder / f"{plan.name}.attn"
    source.write_text(plan.text, encoding="utf-8")
    command = [options.attnc, "explain", source, "--target", options.target, "--ranks", str(ranks), "--format", "json"]
    for name, array in ranks_plans.values_of(case).items() if plan.values else ():
        command += ["--in", f"{name}=@{ranks_plans.save_array(folder / f'{case.name}_{name}.npy', array)}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{plan.name}: {ranks_plans.message_of(done)}")
    return json.loads(done.stdout)


def cell(of, one_gpu):
    if "refusal" in of or "forward_ms" not in of:
        return "-"
    return f"{of['balance']:.2f}, {of['received'] / 1e6:,.0f}, {one_gpu / of['forward_ms']:.1f}"


def row(mask, ranks, made):
    schemes = {scheme["name"]: scheme for scheme in made["schemes"]}
    cells = [cell(made, made["one_gpu_ms"])] + [cell(schemes[name], made["one_gpu_ms"]) for name in SCHEMES]
    how = f"{made['groups_of_heads']}, {made['dealing']}"
    return f"| {mask} | {ranks} | {how} | " + " | ".join(cells) + " |"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--attnc", default="build/attnc")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--size", type=int, default=524288, help="rows and keys")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 1024])
    parser.add_argument("--masks", nargs="+", choices=ranks_plans.MASKS, default=list(ranks_plans.MASKS))
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--key-heads", type=int, default=8)
    parser.add_argument("--depth", type=int, default=128)
    return parser.parse_args()


def main():
    options = parse()
    print("| mask | ranks | groups of heads, rows | attnc | " + " | ".join(SCHEMES) + " |")
    print("|---|---:|---|" + "---|" * (1 + len(SCHEMES)))
    with tempfile.TemporaryDirectory() as folder:
        for mask in options.masks:
            for ranks in options.ranks:
                print(row(mask, ranks, explained(options, mask, ranks, pathlib.Path(folder))), flush=True)


if __name__ == "__main__":
    main()
