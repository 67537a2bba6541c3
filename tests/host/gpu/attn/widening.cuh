// Takes the place of compiler/device/attn/widening.cuh on the host; see tests/host/gpu/gpu.h.
#pragma once

#include "attn/wgmma.cuh"

namespace kernels {

constexpr int kWideningThreads = 128;

ATTN_INLINE float float_of(E4M3, unsigned char bits) {
  return (float)attn::from_fp8_bits(attn::DType::e4m3, bits);
}
ATTN_INLINE float float_of(E5M2, unsigned char bits) {
  return (float)attn::from_fp8_bits(attn::DType::e5m2, bits);
}
ATTN_INLINE float float_of(I8, unsigned char bits) { return (float)(signed char)bits; }

// Two floats of a word.
ATTN_INLINE float2 floats_of(BF16, unsigned word) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}
ATTN_INLINE float2 floats_of(F16, unsigned word) {
  return {(float)attn::from_f16_bits(word & 0xffff), (float)attn::from_f16_bits(word >> 16)};
}

template <class From, class To>
ATTN_INLINE uint2 widened(From type, To to, unsigned four) {
  float all[4];
  for (int i = 0; i < 4; ++i) all[i] = float_of(type, (unsigned char)(four >> 8 * i));
  return make_uint2(pair(to, all[0], all[1]), pair(to, all[2], all[3]));
}

ATTN_INLINE void load_global(uint4& four, const unsigned char* from, bool has) {
  four = {};
  if (has) memcpy(&four, from, sizeof four);
}

}  // namespace kernels
