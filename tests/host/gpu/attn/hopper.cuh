// Takes the place of compiler/device/attn/hopper.cuh on the host; see tests/host/gpu/gpu.h.
#pragma once

#include "attn/values.cuh"
#include "tests/host/gpu/cuda.h"

namespace kernels {

#define ATTN_INLINE static __device__ __forceinline__

struct alignas(64) TensorMap {
  unsigned long long words[16];
};

ATTN_INLINE const attn::gpu::TensorMap& described(const TensorMap& map) {
  return *reinterpret_cast<const attn::gpu::TensorMap*>(map.words);
}

ATTN_INLINE unsigned char* shared_memory() { return attn::gpu::shared_memory(); }
ATTN_INLINE unsigned shared_address(const void* pointer) {
  return (unsigned)((const unsigned char*)pointer - shared_memory());
}

ATTN_INLINE void init_barrier(unsigned barrier, unsigned arrivals) {
  attn::gpu::init_barrier(barrier, arrivals);
}
ATTN_INLINE bool elect() { return threadIdx.x % 32 == 0; }
ATTN_INLINE void publish_barriers() {}
ATTN_INLINE void arrive(unsigned barrier) { attn::gpu::arrive(barrier); }
ATTN_INLINE void arrive_expecting(unsigned barrier, unsigned bytes) {
  attn::gpu::expect_bytes(barrier, bytes);
  attn::gpu::arrive(barrier);
}
ATTN_INLINE bool is_done(unsigned barrier, unsigned parity) {
  return attn::gpu::is_done(barrier, parity);
}
ATTN_INLINE void wait(unsigned barrier, unsigned parity) { attn::gpu::wait(barrier, parity); }
ATTN_INLINE void sync_named(int name, int threads) { attn::gpu::sync_named(name, threads); }
ATTN_INLINE void arrive_named(int name, int threads) { attn::gpu::arrive_named(name, threads); }

ATTN_INLINE void prefetch_map(const TensorMap&) {}
ATTN_INLINE void prefetch_line(const void*) {}

template <bool kOnce = false, typename... Coordinates>
ATTN_INLINE void copy_box(unsigned to, const TensorMap& map, unsigned barrier, Coordinates... x) {
  const int coordinates[] = {(int)x...};
  attn::gpu::copy_box(to, described(map), barrier, coordinates, sizeof...(x));
}

ATTN_INLINE void begin_next_launch() {}
ATTN_INLINE void wait_for_launch() {}
ATTN_INLINE int add_in_order(int* count, int value) { return atomicAdd(count, value); }
ATTN_INLINE int read_in_order(const int* count) { return *count; }
ATTN_INLINE void wait_for_count(const int* count, int number) {
  attn::gpu::wait_for_count(count, number);
}

ATTN_INLINE void store_shared(unsigned address, unsigned value) {
  memcpy(attn::gpu::shared_at(address, 4), &value, 4);
}
ATTN_INLINE void store_byte(unsigned address, unsigned value) {
  *attn::gpu::shared_at(address, 1) = (unsigned char)value;
}
ATTN_INLINE void clear_shared(unsigned address) {
  memset(attn::gpu::shared_at(address, 16), 0, 16);
}
ATTN_INLINE unsigned load_shared(unsigned address) {
  unsigned value;
  memcpy(&value, attn::gpu::shared_at(address, 4), 4);
  return value;
}

ATTN_INLINE float2 load_two(unsigned address) {
  float2 two;
  memcpy(&two, attn::gpu::shared_at(address, 8), 8);
  return two;
}
ATTN_INLINE uint4 load_vector(unsigned address) {
  uint4 four;
  memcpy(&four, attn::gpu::shared_at(address, sizeof four), sizeof four);
  return four;
}
ATTN_INLINE void store_vector(unsigned address, uint2 low, uint2 high) {
  const unsigned all[] = {low.x, low.y, high.x, high.y};
  memcpy(attn::gpu::shared_at(address, sizeof all), all, sizeof all);
}

ATTN_INLINE void copy_vector(unsigned to, const void* from, bool has) {
  attn::gpu::copy_vector(to, has ? from : nullptr);
}
ATTN_INLINE void copy_or_clear(unsigned to, const void* from, bool has) {
  attn::gpu::copy_vector(to, has ? from : nullptr);
}
ATTN_INLINE void arrive_with_copies(unsigned barrier) { attn::gpu::arrive_with_copies(barrier); }
ATTN_INLINE void finish_copies() {}
ATTN_INLINE void publish_writes() {}

ATTN_INLINE void load_matrices(unsigned (&pairs)[4], unsigned address) {
  const unsigned long long* const rows = attn::gpu::gather(address);
  const unsigned lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    pairs[i] = load_shared((unsigned)rows[8 * i + lane / 4] + lane % 4 * 4);
  }
}

ATTN_INLINE int unknown(int value) { return value; }

template <int kRegisters>
ATTN_INLINE void give_registers() {}
template <int kRegisters>
ATTN_INLINE void take_registers() {}

ATTN_INLINE float power_of_two(float x) { return exp2f(x); }
ATTN_INLINE float reciprocal(float x) {
  const float y = 1 / x;
  return fabsf(y) < 0x1p-126f ? 0.0f : y;  // as the GPU flushes it
}
ATTN_INLINE float fast_tanh(float x) { return tanhf(x); }
ATTN_INLINE float larger_or_nan(float x, float y) { return x != x || x > y ? x : y; }
ATTN_INLINE int largest_of(int x, int y, int z) { return std::max({x, y, z}); }

ATTN_INLINE unsigned pair(BF16, float low, float high) {
  return attn::to_bf16_bits(low) | (unsigned)attn::to_bf16_bits(high) << 16;
}
ATTN_INLINE unsigned pair(F16, float low, float high) {
  return attn::to_f16_bits(low) | (unsigned)attn::to_f16_bits(high) << 16;
}
ATTN_INLINE unsigned larger_magnitudes(BF16, unsigned x, unsigned y) {
  const unsigned low = std::max(x & 0x7fff, y & 0x7fff);
  return low | std::max(x & 0x7fff0000, y & 0x7fff0000);
}
ATTN_INLINE unsigned pair_of_bytes(attn::DType type, float low, float high) {
  return attn::to_fp8_bits(type, low) | (unsigned)attn::to_fp8_bits(type, high) << 8;
}
ATTN_INLINE unsigned pair(E4M3, float low, float high) {
  return pair_of_bytes(attn::DType::e4m3, low, high);
}
ATTN_INLINE unsigned pair(E5M2, float low, float high) {
  return pair_of_bytes(attn::DType::e5m2, low, high);
}

// All ones in each half whose lower 15 bits are at least, or below, those of the bound.
ATTN_INLINE uint2 wide_product(unsigned x, unsigned y) {
  const unsigned long long product = (unsigned long long)x * y;
  return make_uint2((unsigned)product, (unsigned)(product >> 32));
}

ATTN_INLINE unsigned halves(unsigned word, unsigned bound, bool at_least) {
  unsigned result = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const bool greater = (word >> shift & 0x7fff) >= (bound >> shift & 0x7fff);
    if (greater == at_least) result |= 0xffffu << shift;
  }
  return result;
}
ATTN_INLINE unsigned halves_at_least(unsigned word, unsigned bound) {
  return halves(word, bound, true);
}
ATTN_INLINE unsigned halves_below(unsigned word, unsigned bound) {
  return halves(word, bound, false);
}

}  // namespace kernels
