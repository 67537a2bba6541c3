// Weights of the forward: softmax.
#pragma once

#include "attn/reals.cuh"

namespace kernels {

// Relative to a maximum of each row, which moves (kLazy: only by much), unless scores are bounded.
template <class Base>
struct SoftmaxWeights : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Range = typename Base::Range;
  using Base::Base;
  using Base::exponent, Base::raised, Base::maximum, Base::sum, Base::kept, Base::s, Base::kOf8Bits,
      Base::kKeepsLargest, Base::kScores, Base::kHidesWeights, Base::hide, Base::larger,
      Base::reference_of;

  // Makes weights of the scores, and adds them. Gets the factor of what was summed so far; true if
  // it is not 1.
  template <bool kAhead = false>
  __device__ __forceinline__ bool make_weights(float (&shift)[2], float (&factor)[2]) {
    bool moved = false;
    float added[2];  // to exponents
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (E::kBounded) {
        added[r] = shift[r] * exponent, factor[r] = 1;
        continue;
      }
      const float before = maximum[r];
      float largest = larger(before, largest_of_row(r, shift[r]));
      // -inf - -inf is NaN, and stays.
      if (C::kLazy)
        largest = (largest - before) * exponent > Range::slack(raised) ? largest : before;
      maximum[r] = largest;
      const float reference = reference_of(largest);
      factor[r] = largest == before ? 1.0f : power_of_two(before * exponent - reference);
      const float lowered = kOf8Bits || Range::kRaised > 0 ? raised - reference : -reference;
      added[r] = E::kScore ? fmaf(shift[r], exponent, lowered) : lowered;
      if constexpr (kKeepsLargest) kept[r] *= factor[r];
      moved |= largest != before;
    }
    if constexpr (kAhead) this->multiply_further();
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = weight_of(i, fmaf(s[i], exponent, added[i / 2 & 1]));
    if constexpr (kHidesWeights) hide();
    float part[2][2] = {{0, 0}, {0, 0}};
#pragma unroll
    for (int i = 0; i < kScores; ++i) part[i / 2 & 1][i & 1] += s[i];
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] = fmaf(sum[r], factor[r], part[r][0] + part[r][1]);
    return moved;
  }

  // 2^x for score i. Of each 16, kPolynomials do without the special-function unit.
  static __device__ __forceinline__ float weight_of(int i, float x) {
    constexpr int kShare = E::kPolynomials;
    if ((i + 1) * kShare / 16 == i * kShare / 16) return power_of_two(x);
    return power_of_two_by_polynomial(x);
  }

  // The largest of a row; no shift makes NaN of rows that are hidden.
  __device__ __forceinline__ float largest_of_row(int r, float& shift) const {
    float x = s[2 * r], y = s[2 * r + 1];
#pragma unroll
    for (int i = 4 + 2 * r; i < kScores; i += 4) x = larger(x, s[i]), y = larger(y, s[i + 1]);
    x = larger(x, y);
    if (x == nothing()) shift = 0;
    x += shift;
    x = larger(x, __shfl_xor_sync(~0u, x, 1));
    return larger(x, __shfl_xor_sync(~0u, x, 2));
  }
};

}  // namespace kernels
