#!/bin/sh
# Random specs: many asked of cuDNN's heuristics, where graphs that it cannot take end its process;
# as many as there is time for compiled; and some of those compared with the reference on the GPU.
# Builds nothing; needs build/attnc, build/random_specs and Python.
#
#     tests/gpu/random.sh OUT_FOLDER [COUNT] [FIRST] [SECONDS] [SAMPLE]
#
# Specs FIRST .. FIRST + COUNT - 1, by a process for each core; SECONDS are those of compiling.
# OUT_FOLDER gets offered.txt, compiled.txt and verified.txt, what became of each spec in
# outcomes.txt.gz, and in cases.tar.gz the specs that were neither served nor refused by a rule, and
# those that do not agree. The exit code is 0 when there is none of either.
set -u
cd "$(dirname "$0")/../.."
out=${1:?OUT_FOLDER}
count=${2:-20000}
first=${3:-1}
seconds=${4:-240}
sample=${5:-300}
work=$(mktemp -d)
mkdir -p "$out"
code=0

# part NAME ARGUMENT...: what random_specs says, to OUT_FOLDER/NAME.txt.
part() {
  name=$1
  shift
  build/random_specs "$count" "$first" "$work/$name" "$@" >"$out/$name.txt" 2>"$out/$name.log"
  [ $? -ne 0 ] && code=1
  cat "$out/$name.txt"
}

part offered --offer
part compiled --only-cudnn --seconds "$seconds" --sample "$sample"

python3 tests/gpu/verify_folder.py build/attnc "$work/compiled/sample" "$work/compiled/cases" \
  >"$out/verified.txt" || code=1
tail -n 1 "$out/verified.txt"
cat "$work/offered/outcomes.txt" "$work/compiled/outcomes.txt" | gzip >"$out/outcomes.txt.gz"
tar -C "$work" -czf "$out/cases.tar.gz" offered/cases compiled/cases
rm -r "$work"
exit $code
