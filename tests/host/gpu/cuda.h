// What kernels with shared memory and warps call of CUDA, besides warps_on_host.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/host/gpu/gpu.h"

#define __forceinline__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__

using std::max;
using std::min;

struct uint2 {
  unsigned x, y;
};
struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline float __fdiv_rn(float x, float y) { return x / y; }
// As wrong as it may be: by two units in the last place.
inline float __fdividef(float x, float y) { return nextafterf(nextafterf(x / y, 0), 0); }
inline int __float_as_int(float value) {
  int bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __int_as_float(int bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline float __log2f(float x) { return log2f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
template <typename T>
T __ldcg(const T* from) {
  return *from;
}
template <typename T>
T __ldg(const T* from) {
  return *from;
}
inline int __ffs(unsigned bits) { return __builtin_ffs((int)bits); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

template <typename T>
T atomicAdd(T* place, T value) {
  const T before = *place;
  *place += value;
  return before;
}
template <typename T>
T atomicMax(T* place, T value) {
  const T before = *place;
  *place = std::max(before, value);
  return before;
}
template <typename T>
T atomicMin(T* place, T value) {
  const T before = *place;
  *place = std::min(before, value);
  return before;
}
inline int atomicOr(int* place, int value) {
  const int before = *place;
  *place |= value;
  return before;
}
// Byte i of the result is that of y above x whose number is in 4 bits of the selector.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long both = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 32; i += 8) {
    result |= (unsigned)(both >> (selector >> i / 2 & 7) * 8 & 0xff) << i;
  }
  return result;
}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void __syncthreads() { attn::gpu::sync_block(); }
inline void __trap() { attn::gpu::trap(); }

// Operations of a warp; all lanes take part.
inline void __syncwarp() { attn::gpu::gather(0); }
template <typename T>
T of_lane(const unsigned long long* bits, int lane) {
  T value;
  memcpy(&value, bits + lane, sizeof value);
  return value;
}
template <typename T>
const unsigned long long* gather_values(T value) {
  unsigned long long bits = 0;
  memcpy(&bits, &value, sizeof value);
  return attn::gpu::gather(bits);
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return of_lane<T>(gather_values(value), lane & 31);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, int away) {
  const int lane = (int)(threadIdx.x & 31);
  return of_lane<T>(gather_values(value), lane < away ? lane : lane - away);
}
inline unsigned __match_any_sync(unsigned, int value) {
  const unsigned long long* values = gather_values(value);
  unsigned alike = 0;
  for (int lane = 0; lane < 32; ++lane)
    alike |= (unsigned)(of_lane<int>(values, lane) == value) << lane;
  return alike;
}
template <typename Combine>
int combined(int value, Combine combine) {
  const unsigned long long* values = gather_values(value);
  int result = of_lane<int>(values, 0);
  for (int lane = 1; lane < 32; ++lane) result = combine(result, of_lane<int>(values, lane));
  return result;
}
inline int __reduce_min_sync(unsigned, int value) {
  return combined(value, [](int x, int y) { return x < y ? x : y; });
}
inline int __reduce_max_sync(unsigned, int value) {
  return combined(value, [](int x, int y) { return x > y ? x : y; });
}
inline int __reduce_add_sync(unsigned, int value) {
  return combined(value, [](int x, int y) { return x + y; });
}
inline bool __any_sync(unsigned, bool value) {
  return combined(value, [](int x, int y) { return x | y; }) != 0;
}
inline bool __all_sync(unsigned, bool value) {
  return combined(value, [](int x, int y) { return x & y; }) != 0;
}
inline unsigned __ballot_sync(unsigned, bool value) {
  const unsigned long long* values = gather_values((int)value);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane) bits |= (unsigned)of_lane<int>(values, lane) << lane;
  return bits;
}
