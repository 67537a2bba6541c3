// Enough of CUDA C++ to compile derive kernels for the host.
#pragma once

#include <cmath>
#include <cstring>

using std::isinf;

// Without optimization, GCC translates each function that is not inline, called or not.
#define __device__ inline
#define __global__

struct uint4 {
  unsigned x, y, z, w;
};
struct Extent {
  unsigned x = 0, y = 0, z = 0;
};
inline Extent blockIdx, threadIdx, gridDim;
inline Extent blockDim{256, 1, 1};

inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float rsqrtf(float x) { return 1 / std::sqrt(x); }

inline unsigned long long atomicMin(unsigned long long* place, unsigned long long value) {
  const unsigned long long before = *place;
  if (value < before) *place = value;
  return before;
}

// The kernels of one check.
struct CheckKernels {
  void (*quickly)(void* const*) = nullptr;
  void (*exactly)(void* const*) = nullptr;
};
