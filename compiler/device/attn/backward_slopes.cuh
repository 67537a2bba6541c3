// Derivatives of scores in the backward: dS^T.
#pragma once

#include "attn/transposed.cuh"
#include "attn/wgmma.cuh"

namespace kernels {

// Makes them, in registers and in shared memory.
template <class Base>
struct BackwardSlopes : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Float = typename Base::Float;
  using Base::Base;
  using Base::stages, Base::s, Base::dp, Base::p, Base::ds, Base::held, Base::kDrops, Base::kScores,
      Base::lane, Base::transposed, Base::is_kept, Base::take_kept;

  // dS^T of a step, for this warp group and for those that make dQ.
  __device__ __forceinline__ void make_slopes(int n) {
    differentiate(n);
    publish_writes();
    __syncwarp();
    if (lane() == 0) arrive(stages.slope_full(n));
  }

  // Makes dS^T, in registers and transposed in shared memory, and what learn() takes.
  __device__ __forceinline__ void differentiate(int n) {
    const unsigned deltas = stages.deltas(n) + (lane() & 3) * 8;
    const unsigned to = transposed(stages.slope(n));
    if constexpr (E::kRandom) take_kept();  // again: else 32 predicates are kept, in a register
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) {
      const float2 delta = load_two(deltas + j * 32);
      float slopes[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float kept_part = dp[4 * j + i];
        if (kDrops) kept_part = is_kept(4 * j + i) ? kept_part : 0.0f;
        const float of_score = fmaf(kept_part, E::kKeptScale, -(i & 1 ? delta.y : delta.x));
        slopes[i] = s[4 * j + i] * of_score;
        if (E::kParts > 0) s[4 * j + i] = slopes[i];
#pragma unroll
        for (int n = 0; n < E::kHeld; ++n) held[n][4 * j + i] *= of_score;
      }
      ds[2 * j] = pair(Float{}, slopes[0], slopes[1]);
      ds[2 * j + 1] = pair(Float{}, slopes[2], slopes[3]);
      if (j % 2 == 1) {
        store_transposed(to + j / 2 * 2048, ds[2 * j - 2], ds[2 * j - 1], ds[2 * j], ds[2 * j + 1]);
      }
    }
  }
};

}  // namespace kernels
