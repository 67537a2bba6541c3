// Elements of tensors whose types are known when a kernel runs, as f32.
#pragma once

#include "operations/parameters.h"

#define ATTN_INLINE static __device__ __forceinline__

namespace operations {

// One instruction each.
ATTN_INLINE float from_f16(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
ATTN_INLINE unsigned short to_f16(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
ATTN_INLINE float from_bf16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
ATTN_INLINE unsigned short to_bf16(float x) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// The types of 8 bits: bits of the fraction, the bias of the exponent, the largest number, the
// smallest normal one, and the number whose last bit counts subnormal ones.
struct E4M3 {
  static constexpr int kFraction = 3, kBias = 7;
  static constexpr float kMost = 448, kNormal = 0.015625f, kShift = 16384;
};
struct E5M2 {
  static constexpr int kFraction = 2, kBias = 15;
  static constexpr float kMost = 57344, kNormal = 6.103515625e-5f, kShift = 128;
};

// Rounds to the nearest, ties to even. What is too large becomes the largest number; NaN stays NaN.
template <typename To>
ATTN_INLINE unsigned char to_8_bits(float x) {
  constexpr float kMost = To::kMost, kNormal = To::kNormal, kShift = To::kShift;
  constexpr unsigned kLost = 23 - To::kFraction;  // bits of a normal number
  const unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
  if (x != x) return (unsigned char)(sign | 0x7fu);
  const float size = __uint_as_float(__float_as_uint(x) & 0x7fffffffu);
  const float kept = size < kMost ? size : kMost;
  const unsigned bits = __float_as_uint(kept);
  const unsigned rounded = bits + (1u << (kLost - 1)) - 1 + (bits >> kLost & 1);
  const unsigned normal = (rounded >> kLost) - ((127u - To::kBias) << To::kFraction);
  const unsigned subnormal = __float_as_uint(kept + kShift) - __float_as_uint(kShift);
  return (unsigned char)(sign | (kept < kNormal ? subnormal : normal));
}

// Adjacent elements, aligned to their size, up to 16 bytes.
template <int kCount>
struct Elements {
  float x[kCount];

  __device__ __forceinline__ void load(const void* data, int type, long long at) {
    if (type == attn::operations::kF32) {
      load_f32((const float*)data + at);
      return;
    }
    const Halves read = *(const Halves*)((const unsigned short*)data + at);
    const bool is_bf16 = type == attn::operations::kBF16;
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = is_bf16 ? from_bf16(read.x[i]) : from_f16(read.x[i]);
  }

  __device__ __forceinline__ void store(void* data, int type, long long at) const {
    switch (type) {
      case attn::operations::kF32: return store_f32((float*)data + at);
      case attn::operations::kE4M3: return store_8_bits<E4M3>((unsigned char*)data + at);
      case attn::operations::kE5M2: return store_8_bits<E5M2>((unsigned char*)data + at);
      default: break;
    }
    const bool is_bf16 = type == attn::operations::kBF16;
    Halves made;
#pragma unroll
    for (int i = 0; i < kCount; ++i) made.x[i] = is_bf16 ? to_bf16(x[i]) : to_f16(x[i]);
    *(Halves*)((unsigned short*)data + at) = made;
  }

 private:
  static constexpr int kFloats = kCount < 4 ? kCount : 4;
  struct alignas(4 * kFloats) Floats {
    float x[kFloats];
  };
  struct alignas(2 * kCount) Halves {
    unsigned short x[kCount];
  };
  struct alignas(kCount) Bytes {
    unsigned char x[kCount];
  };

  __device__ __forceinline__ void load_f32(const float* data) {
#pragma unroll
    for (int i = 0; i < kCount; i += kFloats) {
      const Floats read = *(const Floats*)(data + i);
#pragma unroll
      for (int j = 0; j < kFloats; ++j) x[i + j] = read.x[j];
    }
  }
  __device__ __forceinline__ void store_f32(float* data) const {
#pragma unroll
    for (int i = 0; i < kCount; i += kFloats) {
      Floats made;
#pragma unroll
      for (int j = 0; j < kFloats; ++j) made.x[j] = x[i + j];
      *(Floats*)(data + i) = made;
    }
  }
  template <typename To>
  __device__ __forceinline__ void store_8_bits(unsigned char* data) const {
    Bytes made;
#pragma unroll
    for (int i = 0; i < kCount; ++i) made.x[i] = to_8_bits<To>(x[i]);
    *(Bytes*)data = made;
  }
};

}  // namespace operations
