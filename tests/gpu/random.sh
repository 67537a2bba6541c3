#!/bin/sh
# Tests random specs: queries cuDNN's heuristics for many (graphs that it cannot handle crash it),
# compiles as many as time allows, and compares some of those with the reference on the GPU. Builds
# nothing; needs build/attnc, build/random_specs, build/proven_table and Python.
#
#     tests/gpu/random.sh OUT_FOLDER [COUNT] [FIRST] [SECONDS] [SAMPLE]
#
# Then the same with fewer specs of 8-bit attention, forward and backward.
#
# Uses specs FIRST .. FIRST + COUNT - 1 and one process per core; SECONDS limits the compile time. Writes
# to OUT_FOLDER: offered.txt, compiled.txt and verified.txt, and those of in_8_bits and trained_in_8_bits; outcomes.txt.gz, the outcome of each spec;
# cases.tar.gz, the specs that were neither served nor refused by a rule, or that do not agree; and
# proven_random.txt, rows for tests/gpu/proven.txt. The exit code is 0 if all compile and agree.
set -u
cd "$(dirname "$0")/../.."
out=${1:?OUT_FOLDER}
count=${2:-20000}
first=${3:-1}
seconds=${4:-240}
sample=${5:-400}
work=$(mktemp -d)
mkdir -p "$out"
code=0

# part NAME ARGUMENT...: runs random_specs, with output to OUT_FOLDER/NAME.txt.
part() {
  name=$1
  shift
  build/random_specs "$count" "$first" "$work/$name" "$@" >"$out/$name.txt" 2>"$out/$name.log"
  [ $? -ne 0 ] && code=1
  cat "$out/$name.txt"
}

part offered --offer
part compiled --only-cudnn --seconds "$seconds" --sample "$sample"
part in_8_bits --kind quantized --only-cudnn --seconds "$((seconds / 4))" --sample "$((sample / 8))"
part trained_in_8_bits --kind quantized --backward --only-cudnn --seconds "$((seconds / 4))" \
  --sample "$((sample / 8))"

# Run in the work folder, so that specs have short names.
root=$(pwd)
out=$(cd "$out" && pwd)
cd "$work/compiled" || exit 2
python3 "$root/tests/gpu/verify_folder.py" "$root/build/attnc" random cases "$work/verified.json" --engine cudnn \
  >"$out/verified.txt" || code=1
for kind in in_8_bits trained_in_8_bits; do
  options=
  [ $kind = trained_in_8_bits ] && options=--grad
  cd "$work/$kind" || exit 2
  python3 "$root/tests/gpu/verify_folder.py" "$root/build/attnc" random cases "$work/$kind.json" --engine cudnn \
    --shapes own $options >"$out/verified_$kind.txt" || code=1
  tail -n 1 "$out/verified_$kind.txt"
done
cd "$work/compiled" || exit 2
"$root/build/proven_table" "$work/verified.json" >"$out/proven_random.txt"
tail -n 1 "$out/verified.txt"
cat "$work"/*/outcomes.txt | gzip >"$out/outcomes.txt.gz"
tar -C "$work" -czf "$out/cases.tar.gz" offered/cases compiled/cases in_8_bits/cases trained_in_8_bits/cases
cd "$root" && rm -r "$work"
exit $code
