// Weights of the forward: each score itself.
#pragma once

#include "attn/reals.cuh"

namespace kernels {

// Rows have no maximum and no sum. What all scores have to be multiplied by, rows of o are
// (finish_row): so weights in f16 do not lose the bits of a factor such as 1 / n.
template <class Base>
struct LinearWeights : Base {
  using E = typename Base::E;
  using Base::Base;
  using Base::sum, Base::s, Base::kScores, Base::hide;

  __device__ __forceinline__ bool make_weights(const float (&shift)[2], const float (&)[2]) {
    if constexpr (E::kScore) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) s[i] += shift[i / 2 & 1];
    }
    hide_infinite();
    hide();
    // Not negative, of the last weight, so that the next keys are not waited for earlier.
    sum[0] = __int_as_float(unknown(__float_as_int(s[kScores - 1]) & 0x7fffffff));
    return false;
  }

  // A weight of -inf hides its key, as a mask does.
  __device__ __forceinline__ void hide_infinite() {
    if constexpr (E::kHidesScores) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) s[i] = s[i] == nothing() ? 0.0f : s[i];
    }
  }
};

}  // namespace kernels
