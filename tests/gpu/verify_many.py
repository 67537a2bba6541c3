"""verify_many.py ATTNC FOLDER OUT [OPTION...]: runs `attnc verify OPTION...` on each spec in a folder, by 16
processes (ATTN_AT_ONCE: another number), each with a part of the specs. A spec that fails otherwise than by a
refusal, or whose process died, is verified again by a process of its own. Writes a line of JSON for each spec
to the file OUT, and prints how many are right, and for all others why. The exit code is 1 if a result is wrong
or a spec fails, 0 if all are right or refused with a reason."""
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

AT_ONCE = int(os.environ.get("ATTN_AT_ONCE", "16"))
SECONDS = 60  # for each spec


def verify(attnc, specs, options):
    """The cases of these specs that one process told, by spec, and what it said on standard error."""
    command = [attnc, "verify", *map(str, specs), "--format", "jsonl", "--jobs", "1", *options]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS * len(specs))
        said, words = process.stdout, f"exit code {process.returncode}: {process.stderr[-300:]}"
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode()
        words = f"no answer in {SECONDS * len(specs)} s"
    cases = {}
    for line in said.splitlines():
        try:
            case = json.loads(line)
        except ValueError:  # the process ended within a line
            continue
        if "spec" in case:
            cases[pathlib.Path(case["spec"])] = case
    return cases, words


def is_known(case):
    """Whether the case says what kernels compute, or why there are none."""
    return case is not None and ("error" not in case or case["error"]["code"] == "unsupported")


def verify_part(attnc, specs, options):
    cases, _ = verify(attnc, specs, options)
    for spec in specs:
        if is_known(cases.get(spec)):
            continue
        alone, words = verify(attnc, [spec], options)
        failed = {"spec": str(spec), "ok": False, "error": {"code": "process", "message": words}}
        cases[spec] = alone.get(spec, failed)
    return [cases[spec] for spec in specs]


def verdict(case):
    """right, refused, wrong or failed; and why."""
    if case["ok"]:
        return "right", ""
    if "error" in case:
        refused = case["error"]["code"] == "unsupported"
        return "refused" if refused else "failed", case["error"]["message"]
    wrong = {name: output for name, output in case["outputs"].items() if not output["ok"]}
    if not wrong:
        return "wrong", f"runs differ: {case['repetition']['deviations']}"
    return "wrong", "; ".join(f"{name}: {output['why']}" for name, output in wrong.items())


def main():
    attnc, folder, out, options = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
    specs = sorted(folder.glob("*.attn"))
    parts = [part for part in (specs[i::AT_ONCE] for i in range(AT_ONCE)) if part]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        results = pool.map(lambda part: verify_part(attnc, part, options), parts)
        cases = sorted(sum(results, []), key=lambda case: case["spec"])
    pathlib.Path(out).write_text("".join(json.dumps(case) + "\n" for case in cases))
    counts, refusals = collections.Counter(), collections.Counter()
    for case in cases:
        outcome, why = verdict(case)
        counts[outcome] += 1
        if outcome == "refused":
            refusals[why] += 1
        elif outcome != "right":
            print(f"{outcome}: {case['spec']}: {why}")
    for why, count in refusals.most_common():
        print(f"refused: {count}: {why}")
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + f" of {len(cases)} specs")
    return counts["wrong"] + counts["failed"] > 0 or not cases


if __name__ == "__main__":
    sys.exit(main())
