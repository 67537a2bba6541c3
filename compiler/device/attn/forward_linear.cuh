// Weights of the forward: each score itself, or its silu.
#pragma once

#include "attn/reals.cuh"

namespace kernels {

// Rows have no maximum and no sum. What all scores have to be multiplied by, rows of o are
// (finish_row): so weights in f16 do not lose the bits of a factor such as 1 / n.
template <class Base>
struct LinearWeights : Base {
  using E = typename Base::E;
  using Base::Base;
  using Base::expressions, Base::sum, Base::s, Base::kScores, Base::hide;

  template <bool kAhead = false>
  __device__ __forceinline__ bool make_weights(const float (&shift)[2], const float (&)[2]) {
    if constexpr (kAhead) this->multiply_further();
    if constexpr (E::kSilu) {
      take_silus(shift);
    } else if constexpr (E::kScore) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) s[i] += shift[i / 2 & 1];
    }
    hide_infinite();
    hide();
    // Not negative, of the last weight, so that the next keys are not waited for earlier.
    sum[0] = __int_as_float(unknown(__float_as_int(s[kScores - 1]) & 0x7fffffff));
    return false;
  }

  // silu(x) = x / (1 + exp(-x)) = h + h tanh(h), where h = x / 2. The terms nearly cancel where h
  // is far below 0. Down to -4 the relative error is below 2^-12 (fast_tanh); below, a warp takes
  // the exponential, and of -inf 0. Scores become -h first, the largest of which says so.
  static constexpr float kMostForTanh = 4, kMostAboveZero = 100;
  __device__ __forceinline__ void take_silus(const float (&shift)[2]) {
    const float factor = expressions.weight() * -0.5f;
    const float added[2] = {shift[0] * factor, shift[1] * factor};
    int most = 0;
#pragma unroll
    for (int i = 0; i < kScores; i += 2) {
      const int r = i / 2 & 1;
      s[i] = fmaf(s[i], factor, added[r]), s[i + 1] = fmaf(s[i + 1], factor, added[r]);
      most = largest_of(most, __float_as_int(s[i]), __float_as_int(s[i + 1]));
    }
    if (__any_sync(~0u, most > __float_as_int(kMostForTanh))) {
#pragma unroll
      for (int i = 0; i < kScores; ++i)
        s[i] = s[i] > kMostAboveZero
                   ? 0
                   : -2 * s[i] * reciprocal(1 + power_of_two(s[i] * (2 * kLog2E)));
      return;
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = fmaf(s[i], fast_tanh(s[i]), -s[i]);
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
