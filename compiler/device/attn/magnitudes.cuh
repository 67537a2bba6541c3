// Largest magnitudes of 8-bit attentions, as bits: those of positive floats are in their order.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// Bits of a magnitude; NaN is the largest.
ATTN_INLINE unsigned bits_of_magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// The largest of a warp's, if there is no larger one yet. All lanes take part.
ATTN_INLINE void store_largest(unsigned* to, unsigned bits) {
#pragma unroll
  for (int away = 1; away < 32; away *= 2) bits = max(bits, __shfl_xor_sync(~0u, bits, away));
  if (threadIdx.x % 32 == 0 && bits > __ldcg(to)) atomicMax(to, bits);
}

}  // namespace kernels
