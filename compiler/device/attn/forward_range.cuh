// What weights of 8-bit floats are multiplied by, so that they fit their type, and how far a row's
// maximum may stay behind.
#pragma once

#include "attn/forward_stages.cuh"
#include "attn/forward_tensors.cuh"
#include "attn/reals.cuh"

namespace kernels {

// Whether maxima of rows are not computed for every block (forward_following.cuh).
template <class C, class E>
constexpr bool kFollowsMaxima =
    Stages<C>::kOf8Bits&& C::kLazy && !E::kKeep && !E::kRandom && !kPointwise<E> && C::kShares == 1;

template <class C, class E>
struct WeightRange {
  using Float = typename C::Float;
  static constexpr bool kOf8Bits = Stages<C>::kOf8Bits;
  static constexpr float kLeastRoom = 2.8f;  // above weights of 1, in powers of 2 (lowered_by)

  // What weights of 8 bits are to be multiplied by: dropout scales them before they are rounded.
  static __device__ __forceinline__ float weight_scale(const ForwardTensors& tensors) {
    return *tensors.scale_s * E::kKeptScale;
  }
  // Number of powers of 2 by which weights are smaller, so that maxima move seldom: a factor of 256
  // leaves e4m3 1.75. An integer, which changes no rounding of normal numbers. 0 where weights of 1
  // saturate.
  static __device__ __forceinline__ float lowered_by(const ForwardTensors& tensors) {
    const float room = Float::kLog2OfMost - __log2f(weight_scale(tensors));
    return !kFollowsMaxima<C, E> || room < 0 ? 0 : fmaxf(ceilf(kLeastRoom - room), 0);
  }
  // Powers of 2 by which weights in f16 are larger, beside queries of more range: so that those of
  // keys beside one of a much larger score are not lost.
  static constexpr int kRaised = C::kConvertsQueries ? (C::kLazy ? 11 : 15) : 0;
  static constexpr float kLowered = 1.0f / (1 << kRaised);  // what results are multiplied by
  static __device__ __forceinline__ float raised_by(const ForwardTensors& tensors) {
    if constexpr (kOf8Bits) return __log2f(weight_scale(tensors)) - lowered_by(tensors);
    return kRaised;
  }

  // Power of 2 by which the maximum may stay behind. Raised weights, and those of 8 bits, must not
  // overflow.
  static __device__ __forceinline__ float slack(float raised) {
    if constexpr (kRaised > 0)
      return 15 - kRaised;
    else if constexpr (!kOf8Bits)
      return 8;
    else
      return fminf(fmaxf(Float::kLog2OfMost - raised, 0), 8);
  }
};

}  // namespace kernels
