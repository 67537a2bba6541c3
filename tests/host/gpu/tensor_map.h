// What a CUtensorMap says, on the host.
#pragma once

#include <cstdint>

namespace attn::gpu {

// Innermost dimension first; fits in the 128 bytes of a CUtensorMap.
struct alignas(8) TensorMap {
  unsigned char* base = nullptr;
  std::int64_t strides[4] = {};  // in bytes, of all dimensions but the innermost
  std::uint32_t dims[5] = {};
  std::uint16_t box[5] = {};
  std::uint8_t rank = 0, element_bytes = 0, swizzle = 0;
};
static_assert(sizeof(TensorMap) <= 128);

}  // namespace attn::gpu
