// Columns of an accumulator, exchanged among lanes so that each stores adjacent ones.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// Exchanges columns among four lanes. Before it, each lane has two columns of each of 4 groups of
// 8; after it, all 8 columns of one group.
ATTN_INLINE void exchange(unsigned (&pairs)[4], int lane) {
  const bool odd = lane & 1, high = lane & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const unsigned got = __shfl_xor_sync(~0u, odd ? pairs[i] : pairs[i + 1], 1);
    if (odd)
      pairs[i] = got;
    else
      pairs[i + 1] = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned got = __shfl_xor_sync(~0u, high ? pairs[i] : pairs[i + 2], 2);
    if (high)
      pairs[i] = got;
    else
      pairs[i + 2] = got;
  }
}

}  // namespace kernels
