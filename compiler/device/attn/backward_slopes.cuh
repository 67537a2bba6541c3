// Derivatives of scores in the backward: dS^T.
#pragma once

#include "attn/magnitudes.cuh"
#include "attn/reals.cuh"
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
  using Base::stages, Base::s, Base::dp, Base::p, Base::ds, Base::held, Base::d_sum,
      Base::kKeepsTerms, Base::expressions, Base::kDrops, Base::kScores, Base::lane, Base::is_kept,
      Base::take_kept;

  unsigned largest = 0;  // with kNarrow, magnitudes of dS^T so far, as a pair

  // dS^T of a step, for this warp group and for those that make dQ.
  __device__ __forceinline__ void make_slopes(int n) {
    differentiate(n);
    publish_writes();
    __syncwarp();
    if (lane() == 0) arrive(stages.slope_full(n));
  }

  // The derivative of score i, with both parts of its weight. `added`: the power of 2 that is
  // exp(-lse).
  __device__ __forceinline__ float slope_of_quotient(int i, float added, float d_weight,
                                                     float delta) const {
    float d_f = s[i], d_g = d_sum[kKeepsTerms ? 0 : i];
    if constexpr (kKeepsTerms) {
      const auto of = expressions.slopes(s[i], E::kUnit ? power_of_two(added) : 1.0f);
      d_f = of.d_f, d_g = of.d_g;
    }
    return fmaf(d_g, -delta, d_f * d_weight);
  }

  // Makes dS^T, in registers and in shared memory, and what learn() takes.
  __device__ __forceinline__ void differentiate(int n) {
    const unsigned deltas = this->row_values(this->deltas_of(n));
    const unsigned exponents = this->row_values(stages.exponents(n));
    const unsigned to = this->slopes_of_lane(n);
    if constexpr (E::kRandom) take_kept();  // again: else 32 predicates are kept, in a register
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) {
      const float2 delta = load_two(deltas + j * 32);
      float2 exponent = {0, 0};
      if constexpr (kKeepsTerms) exponent = load_two(exponents + j * 32);
      float slopes[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float kept_part = dp[4 * j + i];
        if (kDrops) kept_part = is_kept(4 * j + i) ? kept_part : 0.0f;
        const float shared = i & 1 ? delta.y : delta.x;
        if constexpr (E::kQuotient) {
          const float added = i & 1 ? exponent.y : exponent.x;
          slopes[i] = slope_of_quotient(4 * j + i, added, kept_part * E::kKeptScale, shared);
          if (E::kParts > 0) s[4 * j + i] = slopes[i];
          continue;
        }
        const float of_score = fmaf(kept_part, E::kKeptScale, -shared);
        slopes[i] = s[4 * j + i] * of_score;
        if (E::kParts > 0) s[4 * j + i] = slopes[i];
#pragma unroll
        for (int n = 0; n < E::kHeld; ++n) held[n][4 * j + i] *= of_score;
      }
      ds[2 * j] = pair(Float{}, slopes[0], slopes[1]);
      ds[2 * j + 1] = pair(Float{}, slopes[2], slopes[3]);
      if constexpr (C::kNarrow) include(ds[2 * j]), include(ds[2 * j + 1]);
      if (j % 2 == 1) this->store_slopes(to, j);
    }
  }

  __device__ __forceinline__ void include(unsigned slopes) {
    largest = larger_magnitudes(Float{}, largest, slopes);
  }
  // Stores the largest magnitude in the gradient of the products, at last; all lanes of a warp do.
  __device__ __forceinline__ void store_largest_slope() const {
    const float most = __uint_as_float(max(largest << 16 & 0x7fff0000, largest & 0x7fff0000));
    store_largest(this->tensors.amax_dp, bits_of_magnitude(most * expressions.slope_of_products()));
  }
};

}  // namespace kernels
