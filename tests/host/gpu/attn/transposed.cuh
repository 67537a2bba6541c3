// Takes the place of compiler/device/attn/transposed.cuh on the host; see tests/host/gpu/gpu.h.
#pragma once

#include "attn/mma.cuh"
#include "attn/wgmma.cuh"

namespace kernels {

template <int kColumns, bool kTransposed>
struct Products {
  template <typename Float>
  static void first(Float type, float (&c)[kColumns / 2], unsigned long long a,
                    unsigned long long b) {
    multiply(type, c, a, b, false);
  }
  template <typename Float>
  static void add(Float type, float (&c)[kColumns / 2], unsigned long long a,
                  unsigned long long b) {
    multiply(type, c, a, b, true);
  }

 private:
  template <typename Float>
  static void multiply(Float type, float* c, unsigned long long a, unsigned long long b,
                       bool adds) {
    attn::gpu::multiply({.c = c,
                         .columns = kColumns,
                         .adds = adds,
                         .type = type_of(type),
                         .transposes_a = kTransposed,
                         .a = a,
                         .b = b});
  }
};

ATTN_INLINE unsigned thread_read_again() { return threadIdx.x; }

ATTN_INLINE void store_transposed(unsigned address, unsigned m0, unsigned m1, unsigned m2,
                                  unsigned m3) {
  const unsigned matrices[] = {m0, m1, m2, m3};
  const unsigned long long* const rows = attn::gpu::gather(address);
  const unsigned lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    for (int e = 0; e < 2; ++e) {
      const auto bits = (unsigned short)(matrices[i] >> 16 * e);
      const auto row = (unsigned)rows[8 * i + lane % 4 * 2 + e];
      memcpy(attn::gpu::shared_at(row + lane / 4 * 2, 2), &bits, 2);
    }
  }
}
ATTN_INLINE void store_shared(unsigned address, float x, float y, float z, float w) {
  const float all[] = {x, y, z, w};
  memcpy(attn::gpu::shared_at(address, sizeof all), all, sizeof all);
}
ATTN_INLINE void copy_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  attn::gpu::copy_bytes(to, from, bytes, barrier);
}
ATTN_INLINE void add_floats(float* to, unsigned from, unsigned bytes) {
  attn::gpu::add_floats(to, from, bytes);
}
ATTN_INLINE void wait_for_reads() { attn::gpu::wait_for_sums(); }
ATTN_INLINE void wait_for_sums() { attn::gpu::wait_for_sums(); }

// Blocks of threads run one after another: a turn that has not come will not.
ATTN_INLINE void wait_for_turn(const int* turn, int number) {
  if (*turn != number) __trap();
}
ATTN_INLINE void pass_turn(int* turn, int number) { *turn = number; }

}  // namespace kernels
