// Turns in a ring of stages, each with a barrier that it is full and one that it is empty.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

ATTN_INLINE unsigned empty_of(unsigned full) { return full + 8; }

// A stage after another, with the parity of its phase.
template <int kCount>
struct Turn {
  int stage = 0;
  unsigned parity = 0;

  __device__ void next() {
    if (++stage == kCount) stage = 0, parity ^= 1;
  }
};

}  // namespace kernels
