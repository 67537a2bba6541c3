// Sums along a row, by a block of threads. They are added in double and go forward alone, so that
// an element that is not a number reaches none of those before it.
#pragma once

#include "attn/values.cuh"

namespace kernels {

struct KeySums {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kRun = 4;  // neighbours that a thread adds
  struct Shared {
    double of_warps[kWarps];
  };
  Shared& shared;

  // Calls put(n, the sum of value(0) to value(n)) for each n below `count`. All threads of the
  // block call it.
  template <typename Value, typename Put>
  __device__ void run(long long count, Value value, Put put) const {
    double carried = 0;
    for (long long first = 0; first < count; first += kThreads * kRun) {
      const long long own = first + (long long)threadIdx.x * kRun;
      double values[kRun], sum = 0;
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        values[i] = own + i < count ? value(own + i) : 0;
        sum += values[i];
      }
      double through = before(sum, carried);
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        through += values[i];
        if (own + i < count) put(own + i, through);
      }
    }
  }

 private:
  // What was carried and the sums of the threads before this one; carries the sums of all.
  __device__ double before(double sum, double& carried) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double through = sum;
#pragma unroll
    for (int away = 1; away < 32; away *= 2) {
      const double other = __shfl_up_sync(~0u, through, away);
      if (lane >= away) through += other;
    }
    const double of_lanes = __shfl_up_sync(~0u, through, 1);
    if (lane == 31) shared.of_warps[warp] = through;
    __syncthreads();
    double result = carried;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      if (i < warp) result += shared.of_warps[i];
      carried += shared.of_warps[i];
    }
    __syncthreads();
    return lane > 0 ? result + of_lanes : result;
  }
};

}  // namespace kernels
