// 8-bit floats by integers, for GPUs before compute capability 8.9, which have no instructions that
// convert them.
#pragma once

#include "attn/values.cuh"

namespace kernels {

// The bits of the nearest float with kMantissa bits behind the point and exponents that are kBias
// more, ties to even. Larger magnitudes, infinity among them, become the largest one.
template <int kMantissa, int kBias, unsigned kLargest>
static __device__ unsigned narrowed(float x) {
  constexpr int kDropped = 23 - kMantissa;
  constexpr unsigned kLeastNormal = (128u - kBias) << 23, kInfinity = 0x7f800000u;
  // A float whose last bit is the unit of numbers below the least normal one.
  constexpr unsigned kUnits = (151u - kBias - kMantissa) << 23;
  const unsigned bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
  if (magnitude > kInfinity) return 0x7f;  // NaN
  unsigned rounded;
  if (magnitude < kLeastNormal) {
    rounded = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(kUnits)) - kUnits;
  } else {
    const unsigned half = (1u << (kDropped - 1)) - 1 + (magnitude >> kDropped & 1);
    rounded = ((magnitude + half) >> kDropped) - ((127u - kBias) << kMantissa);
  }
  return (bits >> 24 & 0x80) | (rounded < kLargest ? rounded : kLargest);
}
static __device__ unsigned narrowed(E4M3, float x) { return narrowed<3, 7, 0x7e>(x); }
static __device__ unsigned narrowed(E5M2, float x) { return narrowed<2, 15, 0x7b>(x); }

// Two elements of e4m3, in the lower half of a word, as a pair of halves: each is a 256th of its
// element, and NaN is NaN. The bits of a half are those of the element in other places, and its
// exponent means 8 less.
static __device__ unsigned spread_bytes(unsigned two) { return (two & 0xff) | (two & 0xff00) << 8; }
static __device__ unsigned halves_of_256th(unsigned two) {
  const unsigned magnitudes = two & 0x7f7f, signs = two & 0x8080;
  const unsigned raised = magnitudes | ((magnitudes + 0x0101) & 0x8080);
  return spread_bytes(raised) << 7 | spread_bytes(signs) << 8;
}

}  // namespace kernels
