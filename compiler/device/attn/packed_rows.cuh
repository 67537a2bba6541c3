// Rows of packed sequences (thd), as tensor maps have them. One map serves all sequences: past the
// last row of one it reads zeros, whatever comes next in memory.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// A map's dimension of rows has kMost elements, and its last dimension counts rows too; it begins
// kMost rows before the tensor (TensorMapArgument::before). Row i of a sequence of `length` rows is
// at place(i, length), which is past the end of the dimension from i = length on, and at the row
// of the tensor where the sequence ends. A length below 0 has no rows.
template <int kMost>
struct PackedRows {
  static __device__ int place(int row, int length) { return kMost - length + row; }
  static __device__ int last(const int* starts, int b, int length) { return starts[b] + length; }
};

}  // namespace kernels
