#!/bin/sh
# The whole forward surface on the GPU at hand: every spec of tests/gpu/surface against the
# reference, with batches that are whole, half, of one token and empty; the masks that become
# documents, pages, lengths and parts, and those that look like padding; and what dropout keeps.
#
#     tests/gpu/surface.sh [ATTNC] [OUT_FOLDER] [scaled|all]
#
# OUT_FOLDER gets what each part printed. The last argument is verify's --shapes. The exit code is
# that of the worst part.
set -u
cd "$(dirname "$0")/../.."
attnc=${1:-build/attnc}
out=${2:-}
shapes=${3:-scaled}
worst=0

# part NAME COMMAND...: its output goes to OUT_FOLDER/NAME too.
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

part surface.txt stdbuf -oL "$attnc" verify --all tests/gpu/surface --shapes "$shapes" --bind B=4
part documents.txt stdbuf -oL "$attnc" verify --all tests/gpu/segments --lowering segments --grad
part pages.txt stdbuf -oL "$attnc" verify --all tests/gpu/block_sparse --lowering block_sparse
part lengths.txt stdbuf -oL "$attnc" verify --all tests/gpu/seqlens --lowering seqlens --grad
part cuts.txt stdbuf -oL "$attnc" verify --all tests/gpu/cuts --lowering parts --grad
part like_padding.txt stdbuf -oL "$attnc" verify --all tests/gpu/like_padding --lowering composite --grad
part dropout.txt python3 tests/gpu/dropout_stream.py "$attnc" ${out:+"$out"}
exit $worst
