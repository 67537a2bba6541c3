// Sums of parts of an output.
#pragma once

#include "attn/values.cuh"

namespace kernels {

// N adjacent elements in f32: 1, or 8 with one access of 16 bytes. Element: F16 or BF16.
template <typename Element, int N>
struct Sum {
  float values[N] = {};

  __device__ void add(const unsigned short* from, float weight) {
    unsigned short bits[N];
    if constexpr (N == 8) {
      const uint4 all = *reinterpret_cast<const uint4*>(from);
      memcpy(bits, &all, 16);
    } else {
      bits[0] = *from;
    }
    for (int j = 0; j < N; ++j) values[j] += weight * Element::widen(bits[j]);
  }

  __device__ void store(unsigned short* to) const {
    unsigned short bits[N];
    for (int j = 0; j < N; ++j) bits[j] = Element::narrow(values[j]);
    if constexpr (N == 8) {
      uint4 all;
      memcpy(&all, bits, 16);
      *reinterpret_cast<uint4*>(to) = all;
    } else {
      *to = bits[0];
    }
  }
};

}  // namespace kernels
