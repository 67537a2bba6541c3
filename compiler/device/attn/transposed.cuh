// What the backward needs besides wgmma.cuh and hopper.cuh: products that begin a sum, products of
// a transposed matrix, matrices that are stored transposed, and sums in global memory, in turns.
#pragma once

#include "attn/mma.cuh"
#include "attn/wgmma.cuh"

namespace kernels {

// c = a b^T or c += a b^T, 16 columns of each, of matrices in shared memory; with kTransposed,
// c = a^T b^T, and 16 rows of a. What c held before `first` is dead, so it takes no registers.
template <int kColumns, bool kTransposed>
struct Products;

#define ATTN_NEW(i)                                                                           \
  "=f"(c[i]), "=f"(c[i + 1]), "=f"(c[i + 2]), "=f"(c[i + 3]), "=f"(c[i + 4]), "=f"(c[i + 5]), \
      "=f"(c[i + 6]), "=f"(c[i + 7])
#define ATTN_NEW_8 ATTN_NEW(0)
#define ATTN_NEW_16 ATTN_NEW_8, ATTN_NEW(8)
#define ATTN_NEW_24 ATTN_NEW_16, ATTN_NEW(16)
#define ATTN_NEW_32 ATTN_NEW_24, ATTN_NEW(24)
#define ATTN_NEW_48 ATTN_NEW_32, ATTN_NEW(32), ATTN_NEW(40)
#define ATTN_NEW_64 ATTN_NEW_48, ATTN_NEW(48), ATTN_NEW(56)
#define ATTN_PRODUCT(method, type, name, columns, registers, a, b, adds, operands, transposed)    \
  static __device__ __forceinline__ void method(name, float(&c)[registers], unsigned long long x, \
                                                unsigned long long y) {                           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " adds                                         \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type      \
                 " {" ATTN_TEXT_##registers "}, %" a ", %" b ", p, 1, 1, " transposed ", 0;\n}\n" \
                 : operands                                                                       \
                 : "l"(x), "l"(y));                                                               \
  }
#define ATTN_PRODUCTS(columns, registers, a, b, is_transposed, transposed)                    \
  template <>                                                                                 \
  struct Products<columns, is_transposed> {                                                   \
    ATTN_PRODUCT(first, "bf16", BF16, columns, registers, a, b, "0", ATTN_NEW_##registers,    \
                 transposed)                                                                  \
    ATTN_PRODUCT(add, "bf16", BF16, columns, registers, a, b, "1", ATTN_OPERANDS_##registers, \
                 transposed)                                                                  \
    ATTN_PRODUCT(first, "f16", F16, columns, registers, a, b, "0", ATTN_NEW_##registers,      \
                 transposed)                                                                  \
    ATTN_PRODUCT(add, "f16", F16, columns, registers, a, b, "1", ATTN_OPERANDS_##registers,   \
                 transposed)                                                                  \
  };
ATTN_PRODUCTS(32, 16, "16", "17", false, "0")
ATTN_PRODUCTS(48, 24, "24", "25", false, "0")
ATTN_PRODUCTS(64, 32, "32", "33", false, "0")
ATTN_PRODUCTS(128, 64, "64", "65", false, "0")
ATTN_PRODUCTS(16, 8, "8", "9", true, "1")
ATTN_PRODUCTS(32, 16, "16", "17", true, "1")
ATTN_PRODUCTS(48, 24, "24", "25", true, "1")
ATTN_PRODUCTS(64, 32, "32", "33", true, "1")
#undef ATTN_PRODUCTS
#undef ATTN_PRODUCT
#undef ATTN_NEW
#undef ATTN_NEW_8
#undef ATTN_NEW_16
#undef ATTN_NEW_24
#undef ATTN_NEW_32
#undef ATTN_NEW_48
#undef ATTN_NEW_64

// threadIdx.x, which the compiler does not keep in a register.
ATTN_INLINE unsigned thread_read_again() {
  unsigned thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// Stores the transposes of four matrices of 8 x 8 16-bit elements: lane l has elements 2 (l % 4)
// and the next of row l / 4 of each, and gives the address of row l % 8 of transpose l / 8.
ATTN_INLINE void store_transposed(unsigned address, unsigned m0, unsigned m1, unsigned m2,
                                  unsigned m3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(m0), "r"(m1), "r"(m2), "r"(m3)
      : "memory");
}

ATTN_INLINE void store_shared(unsigned address, float x, float y, float z, float w) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x), "f"(y), "f"(z),
               "f"(w)
               : "memory");
}
// Adjacent bytes, a multiple of 16, that arrive at the barrier.
ATTN_INLINE void copy_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// Adds floats in shared memory to adjacent ones in global memory, in any order.
ATTN_INLINE void add_floats(float* to, unsigned from, unsigned bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
}
// Waits until this thread's sums have been read from shared memory, or are done.
ATTN_INLINE void wait_for_reads() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
ATTN_INLINE void wait_for_sums() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Turns of blocks of threads, in global memory. Sums that a thread has waited for before it passes
// the turn come before those of the thread that waited for this turn.
ATTN_INLINE int turn_now(const int* turn) {
  int number;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(number) : "l"(turn) : "memory");
  return number;
}
// Waits for a turn; with ATTN_BARRIERS for about a second, as wait() of a barrier.
ATTN_INLINE void wait_for_turn(const int* turn, int number) {
#ifdef ATTN_BARRIERS
  const long long start = clock64();
#endif
  while (turn_now(turn) != number) {
#ifdef ATTN_BARRIERS
    if (clock64() - start <= kPatience) continue;
    printf("attnc: block %d, thread %d waits for turn %d of sums, and it is turn %d\n", blockIdx.x,
           threadIdx.x, number, turn_now(turn));
    __trap();
#endif
  }
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
ATTN_INLINE void pass_turn(int* turn, int number) {
  asm volatile("fence.proxy.async.global;\nst.release.gpu.global.s32 [%0], %1;" ::"l"(turn),
               "r"(number)
               : "memory");
}

}  // namespace kernels
