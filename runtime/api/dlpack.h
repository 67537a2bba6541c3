// Reads DLPack tensors. Internal to runtime/api.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/execute/arguments.h"

namespace attn::api {

struct DlTensor {
  execute::TensorView view;
  std::optional<int> device;  // CUDA ordinal; nullopt for managed memory
};

// `dl_tensor` points to a DLTensor. Errors: binding, naming the tensor, for memory that is not CUDA
// memory or a dtype that plans do not have.
Result<DlTensor> read_dlpack(const std::string& name, const void* dl_tensor);

}  // namespace attn::api
