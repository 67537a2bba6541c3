#!/bin/sh
# Tests on the local GPU what cuDNN computes correctly, and writes the table. Builds nothing; needs
# build/attnc and build/proven_table.
#
#     tests/gpu/prove.sh OUT_FOLDER [ROWS...]
#
# Writes to OUT_FOLDER: proven.txt, to be copied to tests/gpu, and verified.txt, the cases that do not
# agree. ROWS are files (proven_random.txt of tests/gpu/random.sh) with rows for combinations that the
# specs do not have.
set -u
cd "$(dirname "$0")/../.."
out=${1:?OUT_FOLDER}
shift
work=$(mktemp -d)
mkdir -p "$out"

# verified NAME ARGUMENT...: one process of `attnc verify`, in the background. By cuDNN's engine, unless the
# arguments name a strategy.
verified() {
  name=$1
  shift
  case " $* " in *" --strategy "*) ;; *) set -- "$@" --engine cudnn ;; esac
  build/attnc verify "$@" --format json >"$work/$name.json" 2>"$work/$name.log" &
}

verified forms --all tests/gpu/forms
verified forms_groups --all tests/gpu/forms --bind Sq=777 --bind Skv=1001 --bind Hq=5 --bind Hkv=1
verified forms_row --all tests/gpu/forms --bind Sq=1
verified forms_long_row --all tests/gpu/forms --bind Sq=1 --bind Skv=5003 --bind B=3
verified derived --all tests/gpu/derived --shapes all
verified surface --all tests/gpu/surface --shapes all --bind B=4
for depth in 320 512 1024 2000; do
  verified deep_$depth --all tests/gpu/deep --shapes own --bind D=$depth
done
verified pages --all tests/gpu/block_sparse --strategy block_sparse
verified lengths --all tests/gpu/seqlens --strategy seqlens --grad --shapes all
verified cuts --all tests/gpu/cuts --strategy parts --grad --shapes all
for strategy in composite tables; do
  verified like_padding_$strategy --all tests/gpu/like_padding --strategy $strategy --grad --shapes all
done
verified like_padding_any --all tests/gpu/like_padding --grad --shapes all
verified fp8 --all tests/gpu/fp8
verified fp8_training --all tests/gpu/fp8_training --grad
verified mxfp8 --all tests/gpu/mxfp8
verified mxfp8_training tests/gpu/mxfp8/causal.attn tests/gpu/mxfp8/padding.attn --grad
verified specs --all specs --shapes all
wait
for folder in tests/gpu/forms tests/gpu/derived tests/gpu/surface specs; do
  verified "gradients_${folder##*/}" --all "$folder" --grad --shapes all
done
wait

build/proven_table "$work"/*.json >"$work/rows"
{
  echo "# Operand combinations of cuDNN's pointwise operations in graphs of specs, and the first spec with each;"
  echo "# made by tests/gpu/prove.sh. right: that spec agreed with the reference. suspect: none did. With"
  build/attnc version | sed 's/^/# /'
  awk -F ' [|] ' '!seen[$2]++' "$work/rows" "$@" | sort -t '|' -k 2
} >"$out/proven.txt"
for file in "$work"/*.json; do
  python3 -c 'import json, sys
for case in json.load(open(sys.argv[1]))["cases"]:
    if not case["ok"]: print(json.dumps(case))' "$file"
done >"$out/verified.txt"
wc -l "$out/proven.txt" "$out/verified.txt"
rm -r "$work"
