// Attributes and descriptors of cuDNN versions newer than the header that this is built with
// (newer.def), under the names of newer headers. An older library rejects them when they are set.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/cudnn/api.h"

namespace attn::cudnn {

// The names are in this namespace, so that they hide those of a newer header.
#define ATTN_NEWER_ATTRIBUTE(name, number, since) \
  inline constexpr auto CUDNN_ATTR_##name = static_cast<cudnnBackendAttributeName_t>(number);
#define ATTN_NEWER_DESCRIPTOR(name, number, since)          \
  inline constexpr auto CUDNN_BACKEND_##name##_DESCRIPTOR = \
      static_cast<cudnnBackendDescriptorType_t>(number);
#include "runtime/cudnn/newer.def"
#undef ATTN_NEWER_ATTRIBUTE
#undef ATTN_NEWER_DESCRIPTOR

// The cuDNN version that introduced an attribute or descriptor ("OPERATION_SOFTMAX_XDESC",
// "OPERATION_SOFTMAX"); 0 if every supported version has it.
std::int64_t since(std::string_view name);

}  // namespace attn::cudnn
