"""sanitized.py ATTNC FOLDER [SPEC...]: runs `attnc verify` of each spec with each tool of compute-sanitizer,
on the engine `native`, and of its gradients if it has a clause `grad`. Without specs: those of
tests/gpu/native, which takes minutes. Prints a line for each run that finds something or fails; the output
of all runs goes to FOLDER. The exit code is 1 if there is such a line."""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
AT_ONCE = 12  # processes on one GPU
SECONDS = 300  # of a run, at most
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")
ROOT = pathlib.Path(__file__).resolve().parents[2]
# The driver is asked for a kernel's parameters until it refuses; that is no error.
OPTIONS = ("--report-api-errors", "no", "--error-exitcode", "9")


def sanitizer():
    found = shutil.which("compute-sanitizer")
    return found or "/usr/local/cuda/bin/compute-sanitizer"


def run(attnc, folder, tool, spec):
    """What is wrong, or an empty text."""
    gradients = ["--grad"] if re.search(r"^\s*grad\b", spec.read_text(), re.MULTILINE) else []
    verify = [attnc, "verify", spec, "--shapes", "own", "--engine", "native", *gradients]
    command = [sanitizer(), "--tool", tool, *OPTIONS, *verify]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"{tool} {spec.name}: more than {SECONDS} s"
    output = process.stdout + process.stderr
    (folder / f"{spec.stem}.{tool}.txt").write_text(output)
    found = SUMMARY.search(output)
    if process.returncode == 0 and found and found[1] == "0":
        return ""
    said = [line for line in output.splitlines() if "=========" in line or "MISMATCH" in line]
    return f"{tool} {spec.name}: exit code {process.returncode}, {' '.join(said)[:300]}"


def main():
    attnc, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    specs = [pathlib.Path(spec) for spec in sys.argv[3:]]
    if not specs:
        specs = sorted((ROOT / "tests/gpu/native").glob("*.attn"))
    folder.mkdir(parents=True, exist_ok=True)
    runs = [(attnc, folder, tool, spec) for tool in TOOLS for spec in specs]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = 0
        for line in pool.map(lambda each: run(*each), runs):
            if line:
                print(line, flush=True)
                wrong += 1
    print(f"{len(runs) - wrong} of {len(runs)} runs found nothing")
    return wrong > 0 or not specs


if __name__ == "__main__":
    sys.exit(main())
