// Sums over the threads of a block, column by column: what the threads before have.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// kWarps: of the block, at most 16. All threads call every function.
template <int kWarps, int kColumns>
struct BlockScan {
  struct Shared {
    int before[kWarps][kColumns];  // of warps
    int carried[kColumns];
  };
  Shared& shared;

  __device__ void begin() const {
    __syncthreads();
    if (threadIdx.x < kColumns) shared.carried[threadIdx.x] = 0;
    __syncthreads();
  }

  // Replaces what a thread has by what all before have, after what was carried; and carries it all.
  __device__ void add(int (&own)[kColumns]) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int through[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      through[c] = sum_before<32>(own[c], lane);
      if (lane == 31) shared.before[warp][c] = through[c];
    }
    __syncthreads();
    add_warps();
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) own[c] = through[c] - own[c] + shared.before[warp][c];
    __syncthreads();
  }
  __device__ int all(int column) const { return shared.carried[column]; }

 private:
  static_assert(kWarps == 16 && kColumns <= 2 * kWarps, "half a warp for each column");

  // Sums over the lanes before of a group, with its own.
  template <int kLanes>
  static __device__ int sum_before(int own, int lane) {
#pragma unroll
    for (int away = 1; away < kLanes; away *= 2) {
      const int other = __shfl_up_sync(~0u, own, away);
      if (lane % kLanes >= away) own += other;
    }
    return own;
  }

  // Half a warp has the sums of all warps in a column.
  __device__ void add_warps() const {
    const int column = threadIdx.x / kWarps, warp = threadIdx.x % kWarps;
    const bool has_column = column < kColumns;
    const int own = has_column ? shared.before[warp][column] : 0;
    const int carried = has_column ? shared.carried[column] : 0;
    const int through = carried + sum_before<kWarps>(own, threadIdx.x % 32);
    __syncwarp();
    if (has_column) shared.before[warp][column] = through - own;
    if (has_column && warp == kWarps - 1) shared.carried[column] = through;
  }
};

}  // namespace kernels
