// Elements of 8 bits become 16-bit floats, which hold all of their values exactly.
#pragma once

#include "attn/hopper.cuh"
#include "attn/narrow_floats.cuh"

namespace kernels {

constexpr int kWideningThreads = 128;  // a warp group

// Four elements of a word, in their order, as two pairs. NaN stays NaN, infinity stays infinity.

ATTN_INLINE uint2 halves_of(E4M3, unsigned four) {
#if __CUDA_ARCH__ < 890
  uint2 halves = make_uint2(halves_of_256th(four), halves_of_256th(four >> 16));  // times 256
  asm("mul.f16x2 %0, %0, %1;" : "+r"(halves.x) : "r"(0x5c005c00u));
  asm("mul.f16x2 %0, %0, %1;" : "+r"(halves.y) : "r"(0x5c005c00u));
#else
  uint2 halves;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(halves.x), "=r"(halves.y)
      : "r"(four));
#endif
  return halves;
}
ATTN_INLINE uint2 halves_of(E5M2, unsigned four) {  // their upper bytes
  return make_uint2(__byte_perm(four, 0, 0x1404), __byte_perm(four, 0, 0x3424));
}
// An integer x is the half 1024 + 128 + x, whose lower byte is x + 128, without 1024 + 128.
ATTN_INLINE uint2 halves_of(I8, unsigned four) {
  const unsigned raised = four ^ 0x80808080u;
  uint2 halves = make_uint2(__byte_perm(raised, 0x64646464u, 0x4140),
                            __byte_perm(raised, 0x64646464u, 0x4342));
  asm("sub.f16x2 %0, %0, %1;" : "+r"(halves.x) : "r"(0x64806480u));
  asm("sub.f16x2 %0, %0, %1;" : "+r"(halves.y) : "r"(0x64806480u));
  return halves;
}
// Two floats of a word.
ATTN_INLINE float2 floats_of(BF16, unsigned word) {
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}
ATTN_INLINE float2 floats_of(F16, unsigned halves) {
  float2 two;
  asm("{\n.reg .f16 x, y;\nmov.b32 {x, y}, %2;\ncvt.f32.f16 %0, x;\ncvt.f32.f16 %1, y;\n}"
      : "=f"(two.x), "=f"(two.y)
      : "r"(halves));
  return two;
}

template <class From>
struct Widening {
  ATTN_INLINE uint2 to(F16, unsigned four) { return halves_of(From{}, four); }
  ATTN_INLINE uint2 to(BF16 type, unsigned four) {
    const uint2 halves = halves_of(From{}, four);
    const float2 low = floats_of(F16{}, halves.x), high = floats_of(F16{}, halves.y);
    return make_uint2(pair(type, low.x, low.y), pair(type, high.x, high.y));
  }
};

// An integer x is the float 2^23 + 128 + x, whose last byte is x + 128, without 2^23 + 128.
template <int kByte>
ATTN_INLINE float float_of_byte(unsigned raised) {
  return __uint_as_float(__byte_perm(raised, 0x4b000000u, 0x7650 | kByte)) - 8388736.0f;
}
template <>
struct Widening<I8> {
  ATTN_INLINE uint2 to(F16, unsigned four) { return halves_of(I8{}, four); }
  ATTN_INLINE uint2 to(BF16 type, unsigned four) {
    const unsigned raised = four ^ 0x80808080u;
    return make_uint2(pair(type, float_of_byte<0>(raised), float_of_byte<1>(raised)),
                      pair(type, float_of_byte<2>(raised), float_of_byte<3>(raised)));
  }
};

template <class From, class To>
ATTN_INLINE uint2 widened(From, To to, unsigned four) {
  return Widening<From>::to(to, four);
}

// 16 bytes of memory that the kernel does not write, or zeros.
ATTN_INLINE void load_global(uint4& four, const unsigned char* from, bool has) {
  asm volatile(
      "{\n.reg .pred has;\nsetp.ne.b32 has, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\n"
      "mov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@has ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
      : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
      : "l"(from), "r"((int)has)
      : "memory");
}

}  // namespace kernels
