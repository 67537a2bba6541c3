// Elements of tensors as functions of their place: the host computes them again for its reference.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace attn::flashinfer_peer {

enum class Tensor : std::uint64_t { kQuery = 1, kKey = 2, kValue = 3 };

// Nearly normal, of mean 0 and variance 1: the sum of four uniform integers. Exact but for one
// product and the rounding to bf16, so that host and device agree.
__host__ __device__ inline __nv_bfloat16 element(Tensor tensor, std::uint64_t place) {
  std::uint64_t bits = (place + 1) * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(tensor);
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ull;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBull;
  bits ^= bits >> 31;
  const int sum = static_cast<int>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) +
                                   (bits >> 48));
  constexpr float kDeviation = 37837.0f;  // of the sum
  return __float2bfloat16_rn(static_cast<float>(sum - 2 * 0xFFFF) * (1.0f / kDeviation));
}

}  // namespace attn::flashinfer_peer
