#include "runtime/cuda/tensor_map.h"

#include <cstring>

#include "runtime/base/check.h"
#include "runtime/cuda/context.h"

namespace attn::cuda {
namespace {

constexpr std::size_t kMostDims = 5;

CUtensorMapDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::f32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::f64: return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case DType::i32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case DType::i64: return CU_TENSOR_MAP_DATA_TYPE_INT64;
    default:
      ATTN_CHECK(size_of(dtype) == 1, to_string(dtype));
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

CUtensorMapSwizzle swizzle_of(std::int64_t bytes) {
  switch (bytes) {
    case 32: return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64: return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128: return CU_TENSOR_MAP_SWIZZLE_128B;
    default: return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

CUtensorMapL2promotion promotion_of(std::int64_t bytes) {
  return bytes == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
}

}  // namespace

Result<TensorMap> encode_tensor_map(const Device& device, void* address,
                                    const TensorMapShape& shape) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  const std::size_t rank = shape.dims.size();
  ATTN_CHECK(rank >= 1 && rank <= kMostDims && shape.box.size() == rank &&
                 shape.strides.size() + 1 == rank,
             "a valid program has valid tensor maps");
  std::array<cuuint64_t, kMostDims> dims{}, strides{};
  std::array<cuuint32_t, kMostDims> box{}, steps{};
  for (std::size_t i = 0; i < rank; ++i) {
    dims[i] = static_cast<cuuint64_t>(shape.dims[i]);
    box[i] = static_cast<cuuint32_t>(shape.box[i]);
    steps[i] = 1;
    if (i > 0)
      strides[i - 1] = static_cast<cuuint64_t>(shape.strides[i - 1]) * size_of(shape.dtype);
  }
  alignas(64) CUtensorMap map{};
  const Context& context = *device.context();
  ATTN_RETURN_IF_ERROR(context.check(
      context.driver().tensor_map_encode(&map, type_of(shape.dtype), static_cast<cuuint32_t>(rank),
                                         address, dims.data(), strides.data(), box.data(),
                                         steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                         swizzle_of(shape.swizzle), promotion_of(shape.promotion),
                                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "describing a tensor for copies by the tensor memory accelerator"));
  TensorMap result;
  std::memcpy(result.bytes.data(), &map, sizeof(map));
  return result;
}

}  // namespace attn::cuda
