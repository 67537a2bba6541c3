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
  double relative_l2 = 0;  // |x - r| / |r|, Euclidean, over elements finite in the reference; of a
                           // gradient divided by the norm of the sizes, when that is larger
  std::optional<double> plain_l2;  // of a gradient: |x - r| / |r|, whatever its terms are
  double max_abs = 0;              // of x - r over the same
  std::string measure;             // which of the two is bounded: "relative L2" or "max abs"
  double bound = 0;
  std::optional<double> worst_row;  // the largest relative L2 of a row; not for statistics
  double row_bound = 0;             // what bounds it
  std::string why;                  // why it does not agree; empty when it does

  bool agrees() const { return why.empty(); }
};

// Tensors of `dtype` (o) are bounded in relative L2, over the whole (4e-3 for bf16, 1e-3 for f16)
// and over each row along the last dimension (3e-2, 8e-3), where a row's norm counts as at least
// 1e-2 of the root mean square of all: roundings that cancel leave such a row nothing to be
// relative to. lse and max are bounded in max abs: 2e-3; sum_exp in relative L2: 2e-3. An infinity
// must stand exactly where the reference has it, with its sign; a NaN, a missing tensor or other
// dims never agree. One comparison for each tensor of the reference that has elements.
//
// Tensors that have `sizes` (reference::Gradients::sizes) are gradients. What bounds them is 1e-2
// for bf16 and 2e-3 for f16 over the whole, `dtype` being the attention's for d_NAME too, and as
// for o over each row of dq, dk and dv and each element of d_NAME, whose neighbours may be sums of
// other terms. Norms are those of the gradient or of its sizes, the larger: kernels round what they
// sum (P and dS to the dtype, delta by the o that it is made of), and where terms cancel, as in the
// gradient of a bias that a whole row shares, which is zero, or by a single key, whose P is 1, what
// is left is no measure of the roundings, but the root of the sum of the squares of the terms is.
std::vector<Comparison> compare(const Outputs& outputs, const Outputs& reference, DType dtype,
                                const Outputs& sizes = {});

}  // namespace attn::tools
