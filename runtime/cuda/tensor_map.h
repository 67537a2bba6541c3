// Tensor maps: descriptors of tensors in device memory for the tensor memory accelerator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/cuda/device.h"

namespace attn::cuda {

// A CUtensorMap, passed to a kernel by value.
struct alignas(64) TensorMap {
  std::array<std::byte, 128> bytes{};
};

// Sizes in elements, innermost dimension first (plan::TensorMapArgument).
struct TensorMapShape {
  DType dtype = DType::f16;
  std::span<const std::int64_t> dims;     // 1 to 5
  std::span<const std::int64_t> strides;  // of all dims but the innermost
  std::span<const std::int64_t> box;
  std::int64_t swizzle = 0;      // bytes
  std::int64_t promotion = 256;  // bytes
};

// Elements outside `dims` read as zero. Neither waits nor touches the device. Errors: cuda, if the
// driver refuses the shape or the address.
Result<TensorMap> encode_tensor_map(const Device& device, void* address,
                                    const TensorMapShape& shape);

}  // namespace attn::cuda
