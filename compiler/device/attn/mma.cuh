// Products of a warp: 16 rows by 8 columns by 16, of 16-bit floats in f32; and what feeds them:
// copies to shared memory in groups, and matrices that are loaded transposed. All GPUs since
// compute capability 8.0 have these.
//
// An accumulator has 4 registers: register 2 r + e of lane l is row l / 4 + 8 r and column
// 2 (l % 4) + e. So a warp's products of adjacent columns, one behind another, have the layout of
// its part of a product of a warp group (wgmma.cuh). Source: PTX ISA, "mma.sync.aligned.m16n8k16",
// "ldmatrix" and "cp.async".
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// Ends a group of copies (copy_vector) of this thread.
ATTN_INLINE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Copies kBytes, 4 to 16, of which memory has `bytes`; the others become 0.
template <int kBytes>
ATTN_INLINE void copy_piece(unsigned to, const void* from, int bytes) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from), "r"(bytes),
                 "n"(kBytes)
                 : "memory");
  }
}
// Waits until at most `kLeft` of its groups are on their way.
template <int kLeft>
ATTN_INLINE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// As load_matrices; lane l gets elements l / 4 of rows 2 (l % 4) and the next of each matrix.
ATTN_INLINE void load_transposed(unsigned (&pairs)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(address)
               : "memory");
}

// Adds four of c, from register `at` on, to sums in global memory, in any order: to adjacent ones
// by one instruction, which needs compute capability 9.0, or to each 32nd. Source: PTX ISA, "red".
template <bool kVector, int kCount>
ATTN_INLINE void add_four(float* to, const float (&c)[kCount], int at) {
  if constexpr (kVector) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(c[at]),
                 "f"(c[at + 1]), "f"(c[at + 2]), "f"(c[at + 3])
                 : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to + 32 * i), "f"(c[at + i])
                   : "memory");
    }
  }
}

// Turns of blocks of threads, in global memory, of sums that threads add (add_four): those that all
// threads of a block had added before they met, and this one passed the turn, come before those of
// the block that waited for it. As wait_for_turn() and pass_turn() (transposed.cuh), which are of
// bulk sums.
ATTN_INLINE void wait_for_own_turn(const int* turn, int number) {
  int now;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
  } while (now != number);
}
ATTN_INLINE void pass_own_turn(int* turn, int number) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(number) : "memory");
}

// c += a b from register `at` on. Words of a: columns 2 (l % 4) and the next of rows l / 4 and
// l / 4 + 8, then the same 8 columns further. Words of b: rows 2 (l % 4) and the next of column
// l / 4, then 8 rows further.
#define ATTN_MULTIPLY(type, name)                                                            \
  template <int kCount>                                                                      \
  ATTN_INLINE void multiply(name, float(&c)[kCount], int at, const unsigned* a, unsigned b0, \
                            unsigned b1) {                                                   \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                               \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"               \
        : "+f"(c[at]), "+f"(c[at + 1]), "+f"(c[at + 2]), "+f"(c[at + 3])                     \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                     \
  }
ATTN_MULTIPLY("bf16", BF16)
ATTN_MULTIPLY("f16", F16)
#undef ATTN_MULTIPLY

}  // namespace kernels
