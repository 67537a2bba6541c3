#include "runtime/cudnn/types.h"

#include "runtime/base/check.h"

namespace attn::cudnn {

cudnnDataType_t to_cudnn(DType type) {
  switch (type) {
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::i8: return CUDNN_DATA_INT8;
    case DType::u8: return CUDNN_DATA_UINT8;
    case DType::i32: return CUDNN_DATA_INT32;
    case DType::i64: return CUDNN_DATA_INT64;
    case DType::boolean: return CUDNN_DATA_BOOLEAN;
    case DType::e4m3: return CUDNN_DATA_FP8_E4M3;
    case DType::e5m2: return CUDNN_DATA_FP8_E5M2;
    case DType::e8m0: return CUDNN_DATA_FP8_E8M0;
  }
  check_failed(__FILE__, __LINE__, "type", "every DType must have a cuDNN data type");
}

cudnnPointwiseMode_t to_cudnn(graph::PointwiseMode mode) {
  static constexpr cudnnPointwiseMode_t kModes[] = {
#define ATTN_POINTWISE(name, cudnn_mode, inputs) cudnn_mode,
#include "runtime/graph/pointwise.def"
#undef ATTN_POINTWISE
  };
  return kModes[static_cast<std::size_t>(mode)];
}

cudnnReduceTensorOp_t to_cudnn(graph::ReduceOp op) {
  switch (op) {
    case graph::ReduceOp::max: return CUDNN_REDUCE_TENSOR_MAX;
    case graph::ReduceOp::add: return CUDNN_REDUCE_TENSOR_ADD;
    case graph::ReduceOp::amax: return CUDNN_REDUCE_TENSOR_AMAX;
  }
  check_failed(__FILE__, __LINE__, "op", "every ReduceOp must have a cuDNN operator");
}

}  // namespace attn::cudnn
