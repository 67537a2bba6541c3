// Scales of each key and value of 8 bits, which columns of scores and of weights are multiplied
// with.
#pragma once

#include "attn/forward_stages.cuh"

namespace kernels {

// Multiplies columns of the scores of two rows, from `first` on, with their scales.
template <int kScores>
ATTN_INLINE void scale_columns(float (&s)[kScores], unsigned scales, int first) {
#pragma unroll
  for (int i = 0; i < kScores; i += 4) {
    const float2 two = load_two(scales + 4 * (i / 4 * 8 + first));
    s[i] *= two.x, s[i + 1] *= two.y, s[i + 2] *= two.x, s[i + 3] *= two.y;
  }
}

// Without them.
template <class Base>
struct NoTokenScales : Base {
  using Base::Base;
  __device__ __forceinline__ void scale_scores() {}
  __device__ __forceinline__ void scale_weights() {}
};

// With them, of warp groups: those of a block are in its stage of keys, which is full until its
// weights are scaled.
template <class Base>
struct TokenScales : Base {
  using C = typename Base::C;
  using Base::Base;
  using Base::stages, Base::key, Base::s, Base::first_column, Base::release;

  __device__ __forceinline__ void scale_scores() {
    scale_columns(s, stages.scales(key.stage), first_column);
  }
  // Sums of weights are made.
  __device__ __forceinline__ void scale_weights() {
    scale_columns(s, stages.scales(key.stage) + 4 * C::kKeys, first_column);
    __syncwarp();  // all lanes have read
    release(stages.key_full(key.stage));
  }
};

}  // namespace kernels
