// What compute capability 9.0 adds: barriers in shared memory that count bytes, copies by the
// tensor memory accelerator (TMA), and products of warp groups (wgmma.cuh).
//
// Addresses in shared memory are 32 bits. Source: PTX ISA, "mbarrier", "cp.async.bulk.tensor",
// "wgmma.mma_async" and "Shared Memory Matrix Layout".
#pragma once

#include "attn/narrow_floats.cuh"
#include "attn/values.cuh"

namespace kernels {

#define ATTN_INLINE static __device__ __forceinline__

struct alignas(64) TensorMap {  // CUtensorMap
  unsigned long long words[16];
};

// Dynamic shared memory.
ATTN_INLINE unsigned char* shared_memory() {
  extern __shared__ __align__(16) unsigned char shared[];
  return shared;
}
ATTN_INLINE unsigned shared_address(const void* pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}

// Barriers: 8 bytes each. A phase ends when all arrivals and all announced bytes have come.

ATTN_INLINE void init_barrier(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// True for one thread of the warp, whose threads are all here.
ATTN_INLINE bool elect() {
  unsigned elected;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(elected));
  return elected != 0;
}

ATTN_INLINE void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

ATTN_INLINE void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and announces bytes that a copy will bring.
ATTN_INLINE void arrive_expecting(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

ATTN_INLINE bool is_done(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

#ifdef ATTN_BARRIERS
constexpr long long kPatience = 2000000000;  // in clocks: about a second

// Ends the kernel with an error that names the barrier. ATTN_BARRIERS are names of pairs of
// barriers from a multiple of 1024 bytes on: that something is full, and that it is empty.
ATTN_INLINE void give_up(unsigned barrier, unsigned parity) {
  static const char* const kNames[] = {ATTN_BARRIERS};
  const unsigned pair = barrier % 1024 / 16;
  printf("attnc: block %d, thread %d waits until %s is %s (barrier %u, phase %u)\n", blockIdx.x,
         threadIdx.x, pair < sizeof(kNames) / sizeof(*kNames) ? kNames[pair] : "something",
         barrier / 8 % 2 ? "empty" : "full", barrier % 1024, parity);
  __trap();
}
#endif

// Waits for the end of the phase of that parity. With ATTN_BARRIERS, for about a second.
ATTN_INLINE void wait(unsigned barrier, unsigned parity) {
#ifdef ATTN_BARRIERS
  const long long start = clock64();
  while (!is_done(barrier, parity)) {
    if (clock64() - start > kPatience) give_up(barrier, parity);
  }
#else
  while (!is_done(barrier, parity)) {
  }
#endif
}

// Named barriers: `threads` threads sync or arrive.
ATTN_INLINE void sync_named(int name, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
ATTN_INLINE void arrive_named(int name, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// Reads a map, which copies need, before the first one does.
ATTN_INLINE void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Brings the line of 128 bytes at the address to the L2 cache.
ATTN_INLINE void prefetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

// Copies the box at these coordinates, innermost first, to shared memory; its bytes arrive at the
// barrier. What is likely read once (kOnce) leaves the L2 cache before all else, by the policy that
// createpolicy makes of evict_first for all of it.
constexpr unsigned long long kEvictFirst = 0x12F0000000000000;
#define ATTN_COPY_BOX(dims, coordinates, policy, hint, ...)                 \
  asm volatile("cp.async.bulk.tensor." dims                                 \
               ".shared::cluster.global.mbarrier::complete_tx::bytes" hint  \
               " [%0], [%1, {" coordinates "}], [%2]" policy ";" ::"r"(to), \
               "l"(&map), "r"(barrier), __VA_ARGS__                         \
               : "memory")
template <bool kOnce = false>
ATTN_INLINE void copy_box(unsigned to, const TensorMap& map, unsigned barrier, int x0, int x1,
                          int x2, int x3) {
  if constexpr (kOnce)
    ATTN_COPY_BOX("4d", "%3, %4, %5, %6", ", %7", ".L2::cache_hint", "r"(x0), "r"(x1), "r"(x2),
                  "r"(x3), "l"(kEvictFirst));
  else
    ATTN_COPY_BOX("4d", "%3, %4, %5, %6", "", "", "r"(x0), "r"(x1), "r"(x2), "r"(x3));
}
template <bool kOnce = false>
ATTN_INLINE void copy_box(unsigned to, const TensorMap& map, unsigned barrier, int x0, int x1,
                          int x2, int x3, int x4) {
  if constexpr (kOnce)
    ATTN_COPY_BOX("5d", "%3, %4, %5, %6, %7", ", %8", ".L2::cache_hint", "r"(x0), "r"(x1), "r"(x2),
                  "r"(x3), "r"(x4), "l"(kEvictFirst));
  else
    ATTN_COPY_BOX("5d", "%3, %4, %5, %6, %7", "", "", "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4));
}
#undef ATTN_COPY_BOX

// Copies 16 bytes, or zeros, without the tensor memory accelerator: as writes of this thread are.
ATTN_INLINE void copy_vector(unsigned to, const void* from, bool has) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(has ? 16 : 0)
               : "memory");
}
// The same, from an address that is not read if there is nothing.
ATTN_INLINE void copy_or_clear(unsigned to, const void* from, bool has) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.u32 p, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, p;\n}" ::"r"(to),
      "l"(from), "r"((int)has)
      : "memory");
}
// Arrives when the copies of this thread have.
ATTN_INLINE void arrive_with_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
// Waits for the copies of this thread, which must not end before.
ATTN_INLINE void finish_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// What threads wrote, and this one waited for, is read by products.
ATTN_INLINE void publish_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

ATTN_INLINE void store_shared(unsigned address, unsigned value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
ATTN_INLINE void store_byte(unsigned address, unsigned value) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
// 16 bytes become 0.
ATTN_INLINE void clear_shared(unsigned address) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0) : "memory");
}
ATTN_INLINE unsigned load_shared(unsigned address) {
  unsigned value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

ATTN_INLINE float2 load_two(unsigned address) {
  float2 two;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(two.x), "=f"(two.y)
               : "r"(address)
               : "memory");
  return two;
}

// 16 bytes of shared memory.
ATTN_INLINE uint4 load_vector(unsigned address) {
  uint4 four;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
               : "r"(address)
               : "memory");
  return four;
}
ATTN_INLINE void store_vector(unsigned address, uint2 low, uint2 high) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(low.x), "r"(low.y),
               "r"(high.x), "r"(high.y)
               : "memory");
}

// Four matrices of 8 x 8 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8,
// and gets elements 2 (l % 4) and the next of row l / 4 of each.
ATTN_INLINE void load_matrices(unsigned (&pairs)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(address)
               : "memory");
}

// Lets the next launch begin, if it overlaps this one, once all blocks are there. Launches overlap
// on compute capability 9.0 and later.
ATTN_INLINE void begin_next_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Waits until the launch before has ended, and sees what it wrote.
ATTN_INLINE void wait_for_launch() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Adds one thread's share of a count: after all that was written before, and before all that is
// read after it, on the GPU.
ATTN_INLINE int add_in_order(int* count, int value) {
  int before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(count), "r"(value)
               : "memory");
  return before;
}

// A count that others add to: what they wrote before is seen by what is read after it.
ATTN_INLINE int read_in_order(const int* count) {
  int now;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(count) : "memory");
  return now;
}
// Waits until it is that number; with ATTN_BARRIERS, for about a second.
ATTN_INLINE void wait_for_count(const int* count, int number) {
#ifdef ATTN_BARRIERS
  const long long start = clock64();
#endif
  while (read_in_order(count) != number) {
#ifdef ATTN_BARRIERS
    if (clock64() - start <= kPatience) continue;
    printf("attnc: block %d, thread %d waits until %d parts are stored, of which %d are\n",
           blockIdx.x, threadIdx.x, number, read_in_order(count));
    __trap();
#endif
  }
}

// The value, which the compiler takes for another each time: what is computed of it is not kept in
// registers.
ATTN_INLINE int unknown(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Moves registers of a block from one warp group to others.
template <int kRegisters>
ATTN_INLINE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
ATTN_INLINE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// 2^x, 0 for -inf; relative error below 2^-22.
ATTN_INLINE float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / x, 0 where it is below the normal numbers; relative error below 2^-22.
ATTN_INLINE float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Relative error below 2^-11 by its documentation. Measured on an H200: absolute error below 2^-16,
// and of 1 - tanh(x) a relative one below 2^-12 for x up to 4.
ATTN_INLINE float fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The larger one; NaN if one is NaN, unlike fmaxf.
ATTN_INLINE float larger_or_nan(float x, float y) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
  return larger;
}

// The largest of three, by one instruction.
ATTN_INLINE int largest_of(int x, int y, int z) { return __vimax3_s32(x, y, z); }

// The low and the high word of a product.
ATTN_INLINE uint2 wide_product(unsigned x, unsigned y) {
  uint2 product;
  asm("{\n.reg .b64 p;\nmul.wide.u32 p, %2, %3;\nmov.b64 {%0, %1}, p;\n}"
      : "=r"(product.x), "=r"(product.y)
      : "r"(x), "r"(y));
  return product;
}

// All ones in each half of a word whose lower 15 bits are at least, or below, those of the bound,
// which is at most 0x7c00. The comparison is that of positive f16, where larger ones are NaN.
ATTN_INLINE unsigned halves_at_least(unsigned word, unsigned bound) {
  unsigned result;
  asm("{\n.reg .b32 x;\nabs.f16x2 x, %1;\nset.geu.u32.f16x2 %0, x, %2;\n}"
      : "=r"(result)
      : "r"(word), "r"(bound));
  return result;
}
ATTN_INLINE unsigned halves_below(unsigned word, unsigned bound) {
  unsigned result;
  asm("{\n.reg .b32 x;\nabs.f16x2 x, %1;\nset.lt.u32.f16x2 %0, x, %2;\n}"
      : "=r"(result)
      : "r"(word), "r"(bound));
  return result;
}

// A pair of 16-bit floats.
ATTN_INLINE unsigned pair(BF16, float low, float high) {
  unsigned bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
ATTN_INLINE unsigned pair(F16, float low, float high) {
  unsigned bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

// The larger magnitudes of two pairs; their signs say nothing.
ATTN_INLINE unsigned larger_magnitudes(BF16, unsigned x, unsigned y) {
  unsigned larger;
#if __CUDA_ARCH__ < 860
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(x & 0x7fff7fffu), "r"(y & 0x7fff7fffu));
#else
  asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(x), "r"(y));
#endif
  return larger;
}

// A pair of 8-bit floats, in the lower half. They saturate; NaN stays NaN.
ATTN_INLINE unsigned pair(E4M3, float low, float high) {
#if __CUDA_ARCH__ < 890
  return narrowed(E4M3{}, low) | narrowed(E4M3{}, high) << 8;
#else
  unsigned short bits;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
  return bits;
#endif
}
ATTN_INLINE unsigned pair(E5M2, float low, float high) {
#if __CUDA_ARCH__ < 890
  return narrowed(E5M2{}, low) | narrowed(E5M2{}, high) << 8;
#else
  unsigned short bits;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
  return bits;
#endif
}

}  // namespace kernels
