#!/bin/sh
# Compares random specs with the reference on the local GPU, by attnc's kernels that every GPU since compute
# capability 8.0 runs: forwards, and pairs of forward and backward. Builds nothing; needs build/attnc,
# build/random_specs and Python.
#
#     tests/gpu/random_warps.sh OUT_FOLDER [FORWARDS] [BACKWARDS] [FIRST]
#
# Writes the specs, from number FIRST on, and FIRST + 10,000 on for pairs, to OUT_FOLDER/forward/random and
# OUT_FOLDER/backward/random, and what became of each to forward.jsonl and backward.jsonl. The exit code is 0 if all
# are right or refused with a reason.
set -u
cd "$(dirname "$0")/../.."
out=${1:?OUT_FOLDER}
first=${4:-1}
mkdir -p "$out"
code=0

# part NAME COUNT OPTION...: COUNT of the specs that the kernels take, of twice as many; options are random_specs'.
part() {
  name=$1 count=$2
  shift 2
  build/random_specs "$((2 * count))" "$first" "$out/$name" --kind kernels --engine native --skeleton mma --offer \
    --sample "$count" "$@" >"$out/$name.txt" || code=1
}

part forward "${2:-500}"
first=$((first + 10000))
part backward "${3:-200}" --backward
verify="python3 tests/gpu/verify_many.py build/attnc"
$verify "$out/forward/random" "$out/forward.jsonl" --engine native --skeleton mma --shapes own || code=1
$verify "$out/backward/random" "$out/backward.jsonl" --engine native --skeleton mma --shapes own --grad || code=1
exit $code
