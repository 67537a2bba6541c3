// Weights of the forward over a sum along the row, whose terms are not the weights.
#pragma once

#include "attn/forward_softmax.cuh"
#include "attn/reals.cuh"

namespace kernels {

// The numerator of a weight, and its part of the sum.
struct QuotientParts {
  float f, g;
};

// With kExponential, the parts are expressions of a term, exp(s - m), and of a unit, exp(-m), where
// m is the maximum of the row, which moves as that of softmax does: all sums of the row are in
// proportion to exp(-m). Numerators are divided by kFactorOfParts, by which o is multiplied. Where
// parts read the unit, m is at least 0. Without kExponential the parts are expressions of the
// score.
template <class Base>
struct QuotientWeights : SoftmaxWeights<Base> {
  using C = typename Base::C;
  using E = typename Base::E;
  using Softmax = SoftmaxWeights<Base>;
  using Base::expressions, Base::exponent, Base::raised, Base::maximum, Base::sum, Base::s,
      Base::block, Base::kScores, Base::larger, Base::reference_of;
  using Softmax::Softmax, Softmax::largest_of_row;
  using Range = typename Base::Range;

  template <bool kAhead = false>
  __device__ __forceinline__ bool make_weights(float (&shift)[2], float (&factor)[2]) {
    bool moved = false;
    float added[2], unit[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      added[r] = shift[r], unit[r] = factor[r] = 1;
      if constexpr (E::kExponential)
        moved |= make_relative(r, shift[r], added[r], unit[r], factor[r]);
    }
    if constexpr (kAhead) this->multiply_further();
    float part[2][2] = {{0, 0}, {0, 0}};
    if (may_hide())
      weigh<true>(added, unit, part);
    else
      weigh<false>(added, unit, part);
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] = fmaf(sum[r], factor[r], part[r][0] + part[r][1]);
    return moved;
  }

  // Moves the maximum of a row. Gets what is added to powers of 2 of its scores, the unit, and the
  // factor of what was summed so far; true if it is not 1.
  __device__ __forceinline__ bool make_relative(int r, float& shift, float& added, float& unit,
                                                float& factor) {
    if constexpr (E::kBounded) {
      added = shift * exponent;
      return false;
    }
    const float before = maximum[r];
    float largest = larger(before, largest_of_row(r, shift));
    if (E::kUnit) largest = larger(largest, 0.0f);
    // -inf - -inf is NaN, and stays.
    if (C::kLazy) largest = (largest - before) * exponent > Range::slack(raised) ? largest : before;
    maximum[r] = largest;
    const float reference = reference_of(largest);
    factor = largest == before ? 1.0f : power_of_two(before * exponent - reference);
    added = E::kScore ? fmaf(shift, exponent, -reference) : -reference;
    if (E::kUnit) unit = power_of_two(-reference);
    return largest != before;
  }

  // Whether some score of the block may be hidden.
  __device__ __forceinline__ bool may_hide() const {
    if constexpr (E::kHidesScores || C::kPatches) return true;
    return block & (kMasked | kByIndices | kPastKeys);
  }

  template <bool kHides>
  __device__ __forceinline__ void weigh(const float (&added)[2], const float (&unit)[2],
                                        float (&part)[2][2]) {
    const float weight = expressions.weight();
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int r = i / 2 & 1;
      const bool hidden = kHides && s[i] == nothing();
      const float term = E::kExponential ? power_of_two(fmaf(s[i], exponent, added[r]))
                                         : (s[i] + added[r]) * weight;
      const QuotientParts of = expressions.parts(term, unit[r]);
      s[i] = hidden ? 0.0f : of.f * (1 / E::kFactorOfParts);
      part[r][i & 1] += hidden ? 0.0f : of.g;
    }
  }
};

}  // namespace kernels
