// Creates internal tensors of a program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/extent.h"
#include "runtime/plan/program.h"

namespace attn::plan {

// A dense row-major internal tensor of these dims.
inline TensorInfo internal_tensor(std::string name, DType dtype, std::vector<std::int64_t> dims) {
  std::vector<std::int64_t> strides = row_major_strides(dims);
  return {std::move(name), TensorRole::internal, dtype,
          std::move(dims), std::move(strides),   kInternalAlignment};
}

}  // namespace attn::plan
