"""verify_folder.py ATTNC SPECS CASES JSON [OPTION...]: runs `attnc verify OPTION...` on each spec in a
folder, in parallel, and prints the errors of each output, the worst last. Specs that do not agree are
copied to CASES; the output of verify is written to JSON. The exit code is 1 if a spec does not agree."""
import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import sys

AT_ONCE = 12  # processes on one GPU; each needs 2 GB of memory


def verify(attnc, spec, options):
    """(error relative to its bound, summary line, output of verify)."""
    command = [attnc, "verify", spec, "--format", "json", *options]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if not process.stdout.startswith("{"):
        why = f"{spec.name} exit code {process.returncode}: {process.stderr[-300:]}"
        return float("inf"), why, []
    case, = json.loads(process.stdout)["cases"]
    if "error" in case:
        return float("inf"), f"{spec.name} {case['error']['message']}", [case]
    worst = 0 if case["ok"] else float("inf")
    words = []
    for name, output in case["outputs"].items():
        measured = output["max_abs"] if output["measure"] == "max abs" else output["relative_l2"]
        worst = max(worst, measured / output["bound"],
                    output.get("worst_row", 0) / output.get("row_bound", 1))
        words.append(f"{name} {measured:.1e} of {output['bound']:.0e} {output['why']}".rstrip())
    return worst, f"{spec.name} {', '.join(words)}", [case]


def main():
    attnc, options = sys.argv[1], sys.argv[5:]
    folder, cases, everything = map(pathlib.Path, sys.argv[2:5])
    specs = sorted(folder.glob("*.attn"))
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda spec: verify(attnc, spec, options), specs))
    wrong = 0
    for (worst, line, _), spec in sorted(zip(results, specs), key=lambda result: result[0][0]):
        print(f"{worst:8.3f} {line}")
        if worst > 1:
            wrong += 1
            shutil.copy(spec, cases / f"disagrees-{spec.name}")
    everything.write_text(json.dumps({"cases": sum((said for _, _, said in results), [])}))
    print(f"{len(specs) - wrong} of {len(specs)} specs agree with the reference")
    return wrong > 0 or not specs


if __name__ == "__main__":
    sys.exit(main())
