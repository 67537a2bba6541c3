// Columns of gradients, as they are stored: in 16 bits, or rounded with a scale to those of an
// 8-bit attention (kNarrow), whose largest magnitudes before that scale are outputs.
#pragma once

#include "attn/backward_defaults.cuh"
#include "attn/magnitudes.cuh"
#include "attn/which.cuh"

namespace kernels {

// The type of dq, dk and dv.
template <class C>
using GradientFloat = typename Which<C::kNarrow, typename C::Gradient, typename C::Float>::Type;
template <class C>
using GradientBits = typename GradientFloat<C>::Bits;

// A gradient that a thread stores.
template <class C>
struct StoredGradient {
  float scale = 1;       // that it is rounded with
  unsigned largest = 0;  // bits of its largest magnitude so far

  // Two columns, of an element that the gradient has, or not.
  __device__ __forceinline__ unsigned rounded(float x, float y, bool exists) {
    if constexpr (C::kNarrow) {
      const unsigned larger = max(bits_of_magnitude(x), bits_of_magnitude(y));
      if (exists) largest = max(largest, larger);
      x *= scale, y *= scale;
    }
    return pair(GradientFloat<C>{}, x, y);
  }
  // All lanes of a warp take part.
  __device__ __forceinline__ void store_largest(unsigned* amax) const {
    if constexpr (C::kNarrow) kernels::store_largest(amax, largest);
  }
};

// What sums of dq, dk and dv are multiplied with to be gradients, and then to be stored.
template <class C, class E>
struct GradientFactors {
  const E& expressions;

  __device__ __forceinline__ float of_queries() const {
    if constexpr (C::kNarrow) return expressions.query_factor();
    return expressions.scale();
  }
  __device__ __forceinline__ float of_keys() const {
    if constexpr (C::kNarrow) return expressions.key_factor();
    return expressions.scale();
  }
  __device__ __forceinline__ float of_values() const {
    if constexpr (C::kNarrow) return expressions.value_factor();
    return E::kKeptScale;
  }
  __device__ __forceinline__ StoredGradient<C> stored_queries() const {
    if constexpr (C::kNarrow) return {expressions.scale_dq()};
    return {};
  }
  __device__ __forceinline__ StoredGradient<C> stored_keys() const {
    if constexpr (C::kNarrow) return {expressions.scale_dk()};
    return {};
  }
  __device__ __forceinline__ StoredGradient<C> stored_values() const {
    if constexpr (C::kNarrow) return {expressions.scale_dv()};
    return {};
  }
};

}  // namespace kernels
