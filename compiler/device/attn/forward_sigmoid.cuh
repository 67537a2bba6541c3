// Weights of the forward: the sigmoid of each score.
#pragma once

#include "attn/reals.cuh"

namespace kernels {

// Rows have no maximum and no sum.
template <class Base>
struct SigmoidWeights : Base {
  using Base::Base;
  using Base::exponent, Base::sum, Base::s, Base::kScores, Base::kWeightScale;

  // The sigmoid of each score, times kWeightScale: small weights would lose bits in f16. One
  // reciprocal, of a product, serves four scores of a row. It is 0 where the product overflows:
  // there each score has its own, which is 0 for -inf.
  template <bool kAhead = false>
  __device__ __forceinline__ bool make_weights(const float (&shift)[2], const float (&)[2]) {
    if constexpr (kAhead) this->multiply_further();
    constexpr float kInverseScale = 1 / kWeightScale;
    float added[2];  // to exponents; if infinite, a hidden score stays hidden
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float x = shift[r] * -exponent;
      added[r] = x < kLowest ? kLowest : x > -kLowest ? -kLowest : x;
    }
    sum[0] = 0;
#pragma unroll
    for (int i = 0; i < kScores; i += 8) {
      float pairs[2][2], inverse[2];  // products, for each row
#pragma unroll
      for (int j = i; j < i + 8; ++j) {
        const float e = power_of_two(fmaf(s[j], -exponent, added[j / 2 & 1]));
        s[j] = fmaf(e, kInverseScale, kInverseScale);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int j = i + 2 * r;
        pairs[r][0] = s[j] * s[j + 1], pairs[r][1] = s[j + 4] * s[j + 5];
        inverse[r] = reciprocal(pairs[r][0] * pairs[r][1]);
      }
      sum[0] += inverse[0] + inverse[1];  // so that the next keys are not waited for earlier
      if (__builtin_expect(inverse[0] == 0 || inverse[1] == 0, false)) {
#pragma unroll
        for (int j = i; j < i + 8; ++j) s[j] = reciprocal(s[j]);
        continue;
      }
#pragma unroll
      for (int j = i; j < i + 8; j += 2) {
        const int r = j / 2 & 1, half = j / 4 & 1;
        const float of_pair = inverse[r] * pairs[r][1 - half], x = s[j];
        s[j] = of_pair * s[j + 1], s[j + 1] = of_pair * x;
      }
    }
    return false;
  }
};

}  // namespace kernels
