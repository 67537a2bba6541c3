// A result against the reference, tensor by tensor.
#pragma once

#include <optional>
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
  std::optional<double> worst_row;  // o: the largest relative L2 of a row; not for lse
  double row_bound = 0;             // what bounds it
  std::string why;                  // why it does not agree; empty when it does

  bool agrees() const { return why.empty(); }
};

// Tensors of `dtype` (o) are bounded in relative L2, over the whole (4e-3 for bf16, 1e-3 for f16)
// and over each row along the last dimension (3e-2, 8e-3), where a row's norm counts as at least
// 1e-2 of the root mean square of all: roundings that cancel leave such a row nothing to be
// relative to. lse and max are bounded in max abs: 2e-3; sum_exp in relative L2:
// 2e-3. An infinity must stand exactly where the reference
// has it, with its sign; a NaN, a missing tensor or other dims never agree. One comparison for each
// tensor of the reference.
std::vector<Comparison> compare(const Outputs& outputs, const Outputs& reference, DType dtype);

}  // namespace attn::tools
