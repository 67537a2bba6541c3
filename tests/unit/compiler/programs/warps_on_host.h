// Runs CUDA C++ kernels on the host: threads one after another, warps in step where they shuffle.
#pragma once

#include <utility>

#include "runtime/base/dtype.h"
#include "tests/unit/compiler/codegen/cuda_on_host.h"

// Functions that kernels call besides those of cuda_on_host.h. Lanes of a warp run until they
// shuffle, and continue when all have; no lane may end before another's last shuffle.
unsigned long long exchange_lanes(unsigned long long bits, int lane_mask);
inline unsigned long long (*exchange)(unsigned long long, int) = exchange_lanes;  // what runs them

template <typename T>
T __shfl_xor_sync(unsigned, T value, int lane_mask) {
  unsigned long long bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(bits, lane_mask);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline unsigned long long atomicMax(unsigned long long* place, unsigned long long value) {
  const unsigned long long before = *place;
  if (value > before) *place = value;
  return before;
}
inline unsigned long long atomicAdd(unsigned long long* place, unsigned long long value) {
  const unsigned long long before = *place;
  *place += value;
  return before;
}
inline unsigned long long __double_as_longlong(double value) {
  unsigned long long bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// The only inline assembly in kernels: cvt.rn.bf16.f32, cvt.rn.f16.f32 and cvt.f32.f16.
inline void convert(const char* instruction, unsigned short& bits, float& x) {
  if (std::strstr(instruction, "cvt.f32.f16")) {
    x = static_cast<float>(attn::from_f16_bits(bits));
  } else {
    bits = std::strstr(instruction, "bf16") ? attn::to_bf16_bits(x) : attn::to_f16_bits(x);
  }
}
#define ATTN_ASM_ON_HOST(...) convert(#__VA_ARGS__, bits, x)

// A kernel, called with arguments as for cuLaunchKernel.
using HostKernel = void (*)(void* const*);
void launch_on_host(HostKernel kernel, std::size_t threads, void* const* arguments, bool backwards);

// A faster version for kernels that do not shuffle.
inline void for_each_thread(HostKernel kernel, std::size_t threads, void* const* arguments) {
  for (std::size_t i = 0; i < threads; ++i) {
    blockIdx.x = static_cast<unsigned>(i / blockDim.x);
    threadIdx.x = static_cast<unsigned>(i % blockDim.x);
    kernel(arguments);
  }
}

template <typename... Parameters, std::size_t... Places>
void call_with(void (*kernel)(Parameters...), void* const* arguments,
               std::index_sequence<Places...>) {
  kernel(*static_cast<Parameters*>(arguments[Places])...);
}
template <typename... Parameters>
void call_with(void (*kernel)(Parameters...), void* const* arguments) {
  call_with(kernel, arguments, std::index_sequence_for<Parameters...>());
}
