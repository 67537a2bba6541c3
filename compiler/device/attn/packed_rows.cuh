// Rows of packed sequences (thd), as tensor maps have them. One map serves all sequences: past the
// last row of one it reads zeros, whatever comes next in memory.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// A map has rows three times (TensorMapArgument::packed): as kSteps rows, of which those of a
// sequence of `length` rows are the last, from place() on; as rows of the tensor, where the
// sequence ends is last(); and as steps back by kSteps rows each, of which one is taken. From row
// `length` on a place is past the end of its dimension. A length below 0 has no rows: its
// places are past the end, or wrap around to negative ones.
//
// A copy that has no row at all is allowed. TMA then reads at the map's address (seen on an H200),
// so this must be the tensor's.
struct PackedRows {
  static constexpr int kSteps = 1 << 30;

  static __device__ int place(int row, int length) { return kSteps - length + row; }
  static __device__ int last(const int* starts, int b, int length) { return starts[b] + length; }
};

}  // namespace kernels
