#!/bin/sh
# Verifies the forward features on the local GPU: every spec of tests/gpu/surface, with batches that are
# full, half, of one token and empty; masks that are lowered to segments, block lists, lengths and parts,
# and masks that look like padding; wide heads; 8-bit attention; the kernels of the engine native (compute
# capability 9.0); and the statistics of dropout.
#
#     tests/gpu/surface.sh [ATTNC] [OUT_FOLDER] [scaled|all]
#
# Writes the output of each part to OUT_FOLDER. The last argument is verify's --shapes. The exit code is
# the largest of all parts.
set -u
cd "$(dirname "$0")/../.."
attnc=${1:-build/attnc}
out=${2:-}
shapes=${3:-scaled}
worst=0

# part NAME COMMAND...: runs COMMAND, with output to OUT_FOLDER/NAME if there is an OUT_FOLDER.
part() {
  name=$1
  shift
  if [ -n "$out" ]; then
    mkdir -p "$out"
    "$@" >"$out/$name" 2>"$out/$name.log"
  else
    "$@"
  fi
  code=$?
  echo "$name: exit code $code"
  [ $code -gt $worst ] && worst=$code
}

part surface.txt stdbuf -oL "$attnc" verify --all tests/gpu/surface --engine cudnn --shapes "$shapes" --bind B=4
for depth in 320 512 1024 2000; do
  part "deep_$depth.txt" stdbuf -oL "$attnc" verify --all tests/gpu/deep --engine cudnn --shapes own --bind D=$depth
done
part documents.txt stdbuf -oL "$attnc" verify --all tests/gpu/segments --strategy segments --grad
part pages.txt stdbuf -oL "$attnc" verify --all tests/gpu/block_sparse --strategy block_sparse
part lengths.txt stdbuf -oL "$attnc" verify --all tests/gpu/seqlens --strategy seqlens --grad
part cuts.txt stdbuf -oL "$attnc" verify --all tests/gpu/cuts --strategy parts --grad
part like_padding.txt stdbuf -oL "$attnc" verify --all tests/gpu/like_padding --strategy composite --grad
part fp8.txt stdbuf -oL "$attnc" verify --all tests/gpu/fp8
part fp8_training.txt stdbuf -oL "$attnc" verify --all tests/gpu/fp8_training --grad
part fp8_native.txt stdbuf -oL "$attnc" verify --all tests/gpu/fp8 --engine native --shapes all
part fp8_training_native.txt stdbuf -oL "$attnc" verify --all tests/gpu/fp8_training --grad --engine native --shapes all
part mxfp8.txt stdbuf -oL "$attnc" verify --all tests/gpu/mxfp8
part mxfp8_training.txt stdbuf -oL "$attnc" verify tests/gpu/mxfp8/causal.attn tests/gpu/mxfp8/padding.attn --grad
part native.txt stdbuf -oL "$attnc" verify --all tests/gpu/native --shapes own --engine native
part dropout.txt python3 tests/gpu/dropout_stream.py "$attnc" ${out:+"$out"}
part dropout_native.txt python3 tests/gpu/dropout_stream.py "$attnc" --engine native
exit $worst
