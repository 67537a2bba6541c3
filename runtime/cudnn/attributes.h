// The typed attribute table (attributes.def) and the descriptor kinds (descriptor_kinds.def).
#pragma once

#include <cstdint>

#include "runtime/cudnn/api.h"
#include "runtime/cudnn/newer.h"

namespace attn::cudnn {

// The C++ type of one element of a CUDNN_TYPE_*.
template <cudnnBackendAttributeType_t kType>
struct ElementOf;
#define ATTN_ELEMENT(name, cpp_type)    \
  template <>                           \
  struct ElementOf<CUDNN_TYPE_##name> { \
    using type = cpp_type;              \
  };
ATTN_ELEMENT(HANDLE, cudnnHandle_t)
ATTN_ELEMENT(DATA_TYPE, cudnnDataType_t)
ATTN_ELEMENT(BOOLEAN, bool)
ATTN_ELEMENT(INT64, std::int64_t)
ATTN_ELEMENT(INT32, std::int32_t)
ATTN_ELEMENT(FLOAT, float)
ATTN_ELEMENT(DOUBLE, double)
ATTN_ELEMENT(RNG_DISTRIBUTION, cudnnRngDistribution_t)
ATTN_ELEMENT(VOID_PTR, void*)
ATTN_ELEMENT(HEUR_MODE, cudnnBackendHeurMode_t)
ATTN_ELEMENT(KNOB_TYPE, cudnnBackendKnobType_t)
ATTN_ELEMENT(POINTWISE_MODE, cudnnPointwiseMode_t)
ATTN_ELEMENT(TENSOR_REORDERING_MODE, cudnnBackendTensorReordering_t)
ATTN_ELEMENT(BACKEND_DESCRIPTOR, cudnnBackendDescriptor_t)
ATTN_ELEMENT(REDUCTION_OPERATOR_TYPE, cudnnReduceTensorOp_t)
ATTN_ELEMENT(CHAR, char)
#undef ATTN_ELEMENT
template <cudnnBackendAttributeType_t kType>
using Element = typename ElementOf<kType>::type;

// Type-independent description of an attribute.
struct AttributeInfo {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  const char* text;  // "TENSOR_DIMENSIONS"
  std::int64_t min_count;
  std::int64_t max_count;
};

template <cudnnBackendAttributeType_t kType>
struct Attribute {
  AttributeInfo info;
};

struct DescriptorKind {
  cudnnBackendDescriptorType_t type;
  const char* text;  // "OPERATION_MATMUL"
};

#define ATTN_ATTRIBUTE(constant, name, type, min, max)    \
  inline constexpr Attribute<CUDNN_TYPE_##type> constant{ \
      {CUDNN_ATTR_##name, CUDNN_TYPE_##type, #name, min, max}};
#include "runtime/cudnn/attributes.def"
#undef ATTN_ATTRIBUTE

#define ATTN_DESCRIPTOR_KIND(constant, name) \
  inline constexpr DescriptorKind constant{CUDNN_BACKEND_##name##_DESCRIPTOR, #name};
#include "runtime/cudnn/descriptor_kinds.def"
#undef ATTN_DESCRIPTOR_KIND

}  // namespace attn::cudnn
