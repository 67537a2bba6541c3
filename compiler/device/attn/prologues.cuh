// Rows of q and k before the attention: a warp has a row, or those of several
// heads at one position, in shared memory.
#pragma once

#include "attn/values.cuh"

namespace kernels {

constexpr int kPrologueWarps = 8;  // of a block of threads

// The sum over the lanes of a warp, in all of them.
static __device__ float sum_of_lanes(float value) {
#pragma unroll
  for (int away = 16; away > 0; away /= 2) value += __shfl_xor_sync(~0u, value, away);
  return value;
}

// The row of this warp among those of all blocks.
static __device__ long long row_of_warp() {
  return (long long)blockIdx.x * kPrologueWarps + threadIdx.x / 32;
}

// 16 bytes, which are copied at once.
struct alignas(16) EightOf16Bits {
  unsigned short bits[8];
};
struct alignas(16) FourFloats {
  float values[4];
};

// Loads eight adjacent elements of 16 bits, wherever they begin, to shared memory, 16 bytes of it
// at a time.
template <class Float>
static __device__ void load_eight(float* to, const unsigned short* from) {
  EightOf16Bits all;
  if ((unsigned long long)from % 16 == 0) {
    all = *reinterpret_cast<const EightOf16Bits*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) all.bits[i] = from[i];
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    FourFloats four;
#pragma unroll
    for (int i = 0; i < 4; ++i) four.values[i] = Float::widen(all.bits[4 * half + i]);
    *reinterpret_cast<FourFloats*>(to + 4 * half) = four;
  }
}

// Stores eight adjacent elements of 16 bits from shared memory; both begin at multiples of 16
// bytes.
static __device__ void store_eight(unsigned short* to, const unsigned short* from) {
  *reinterpret_cast<EightOf16Bits*>(to) = *reinterpret_cast<const EightOf16Bits*>(from);
}

// Stores two adjacent ones at a multiple of 4 bytes of shared memory.
static __device__ void store_pair(unsigned short* to, const unsigned short (&from)[2]) {
  *reinterpret_cast<unsigned*>(to) = from[0] | (unsigned)from[1] << 16;
}

}  // namespace kernels
