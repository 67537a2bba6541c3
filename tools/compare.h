// A result against the reference, tensor by tensor.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "tools/execution.h"

namespace attn::tools {

struct Comparison {
  std::string name;
  double relative_l2 = 0;  // |x - r| / |r|, Euclidean, over elements finite in the reference
  double max_abs = 0;      // of x - r over the same
  std::string measure;     // which of the two is bounded: "relative L2" or "max abs"
  double bound = 0;
  std::string why;  // why it does not agree; empty when it does

  bool agrees() const { return why.empty(); }
};

// Tensors of `dtype` (o) are bounded in relative L2: 4e-3 for bf16, 1e-3 for f16; lse in max abs:
// 2e-3. An infinity must stand exactly where the reference has it, with its sign; a NaN, a missing
// tensor or other dims never agree. One comparison for each tensor of the reference.
std::vector<Comparison> compare(const Outputs& outputs, const Outputs& reference, DType dtype);

}  // namespace attn::tools
