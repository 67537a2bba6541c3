// What the steps of a program make for one another.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/extent.h"
#include "runtime/plan/program.h"

namespace attn::plan {

// Row-major, of these extents.
inline TensorInfo internal_tensor(std::string name, DType dtype, std::vector<std::int64_t> dims) {
  std::vector<std::int64_t> strides = row_major_strides(dims);
  return {std::move(name), TensorRole::internal, dtype,
          std::move(dims), std::move(strides),   kInternalAlignment};
}

}  // namespace attn::plan
