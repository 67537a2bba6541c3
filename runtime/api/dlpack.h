// DLPack tensors as the house's. Private to this room.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/execute/arguments.h"

namespace attn::api {

struct DlTensor {
  execute::TensorView view;
  std::optional<int> device;  // the CUDA ordinal; none for managed memory, which is everywhere
};

// `dl_tensor` is a DLTensor. Errors: binding, naming the tensor, for what is not in CUDA's memory
// or of no dtype that plans have.
Result<DlTensor> read_dlpack(const std::string& name, const void* dl_tensor);

}  // namespace attn::api
