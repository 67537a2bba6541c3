// Rows of q and k before the attention: a warp has a row at a time, in shared memory.
#pragma once

#include "attn/values.cuh"

namespace kernels {

constexpr int kPrologueWarps = 8;  // of a block of threads

// The sum over the lanes of a warp, in all of them.
static __device__ float sum_of_lanes(float value) {
#pragma unroll
  for (int away = 16; away > 0; away /= 2) value += __shfl_xor_sync(~0u, value, away);
  return value;
}

// The row of this warp among those of all blocks.
static __device__ long long row_of_warp() {
  return (long long)blockIdx.x * kPrologueWarps + threadIdx.x / 32;
}

}  // namespace kernels
