// Takes the place of compiler/device/attn/mma.cuh on the host; see tests/host/gpu/gpu.h.
#pragma once

#include "attn/wgmma.cuh"

namespace kernels {

ATTN_INLINE void commit_copies() { attn::gpu::commit_vectors(); }
template <int kBytes>
ATTN_INLINE void copy_piece(unsigned to, const void* from, int bytes) {
  if (bytes > 0) attn::gpu::copy_vector(to, from, bytes);
  if (bytes < kBytes) attn::gpu::copy_vector(to + bytes, nullptr, kBytes - bytes);
}
template <int kLeft>
ATTN_INLINE void wait_for_copies() {
  attn::gpu::wait_for_vectors(kLeft);
}

ATTN_INLINE void load_transposed(unsigned (&pairs)[4], unsigned address) {
  const unsigned long long* const rows = attn::gpu::gather(address);
  const unsigned lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    pairs[i] = 0;
    for (unsigned j = 0; j < 2; ++j) {
      const auto row = (unsigned)rows[8 * i + lane % 4 * 2 + j];
      unsigned short half;
      memcpy(&half, attn::gpu::shared_at(row + lane / 4 * 2, 2), 2);
      pairs[i] |= (unsigned)half << 16 * j;
    }
  }
}

template <bool kVector, int kCount>
ATTN_INLINE void add_four(float* to, const float (&c)[kCount], int at) {
  for (int i = 0; i < 4; ++i) atomicAdd(to + (kVector ? i : 32 * i), c[at + i]);
}
// Blocks of threads run one after another: a turn that has not come will not.
ATTN_INLINE void wait_for_own_turn(const int* turn, int number) {
  if (*turn != number) __trap();
}
ATTN_INLINE void pass_own_turn(int* turn, int number) { *turn = number; }

template <typename Float, int kCount>
ATTN_INLINE void multiply(Float type, float (&c)[kCount], int at, const unsigned* a, unsigned b0,
                          unsigned b1) {
  attn::gpu::multiply_in_warp(
      {.c = c + at, .type = type_of(type), .a = {a[0], a[1], a[2], a[3]}, .b = {b0, b1}});
}

}  // namespace kernels
