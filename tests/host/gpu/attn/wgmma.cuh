// Takes the place of compiler/device/attn/wgmma.cuh on the host; see tests/host/gpu/gpu.h.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

ATTN_INLINE void begin_products() {}
ATTN_INLINE void commit_products() { attn::gpu::commit_products(); }
template <int kLeft>
ATTN_INLINE void wait_for_products() {
  attn::gpu::wait_for_products(kLeft);
}

template <typename T, int kCount>
ATTN_INLINE void pin(T (&)[kCount]) {}

template <int kPanel = 64>
ATTN_INLINE unsigned long long matrix(unsigned address, unsigned rows, unsigned panels) {
  return (unsigned long long)(address >> 4) | (unsigned long long)(panels >> 4) << 16 |
         (unsigned long long)(rows >> 4) << 32 | (kPanel == 64 ? 1ull : 2ull) << 62;
}
ATTN_INLINE unsigned long long behind(unsigned long long matrix, unsigned by) {
  return matrix + by;
}

ATTN_INLINE attn::DType type_of(BF16) { return attn::DType::bf16; }
ATTN_INLINE attn::DType type_of(F16) { return attn::DType::f16; }
ATTN_INLINE attn::DType type_of(E4M3) { return attn::DType::e4m3; }
ATTN_INLINE attn::DType type_of(E5M2) { return attn::DType::e5m2; }

template <int kColumns>
struct Scores {
  template <typename Float>
  static void add(Float type, float (&c)[kColumns / 2], unsigned long long a, unsigned long long b,
                  int adds) {
    attn::gpu::multiply(
        {.c = c, .columns = kColumns, .adds = adds != 0, .type = type_of(type), .a = a, .b = b});
  }
};
template <int kColumns>
struct ScoresOf8Bits : Scores<kColumns> {};

template <int kColumns, bool kTransposed = true>
struct Weighted {
  template <typename Float>
  static void add(Float type, float (&c)[kColumns / 2], unsigned a0, unsigned a1, unsigned a2,
                  unsigned a3, unsigned long long b, int adds) {
    attn::gpu::multiply({.c = c,
                         .columns = kColumns,
                         .adds = adds != 0,
                         .type = type_of(type),
                         .has_fragments = true,
                         .transposes_b = kTransposed,
                         .fragments = {a0, a1, a2, a3},
                         .b = b});
  }
};
template <int kColumns>
struct WeightedOf8Bits : Weighted<kColumns, false> {};

}  // namespace kernels
