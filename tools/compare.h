// Comparison of outputs with the reference, tensor by tensor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "tools/execution.h"

namespace attn::tools {

struct Comparison {
  std::string name;
  double relative_l2 = 0;  // |x - r| / |r| (L2) over elements finite in the reference; for a
                           // gradient divided by the norm of its sizes if that is larger
  std::optional<double> plain_l2;  // gradients only: |x - r| / |r|, without sizes
  double max_abs = 0;              // of x - r over the same elements
  std::string measure;             // the bounded measure: "relative L2" or "max abs"
  double bound = 0;
  std::optional<double> worst_row;  // the largest relative L2 of a row; not for statistics
  double row_bound = 0;             // bound of worst_row
  std::string why;                  // reason of a mismatch; empty if the tensors agree

  bool agrees() const { return why.empty(); }
};

// Returns one comparison for each tensor of the reference that has elements.
//
// Tensors of `dtype` (o) are bounded in relative L2, over the whole tensor (4e-3 for bf16, 1e-3 for
// f16) and over each row along the last dimension (3e-2, 8e-3). A row's norm counts as at least
// 1e-2 of the root mean square of all rows: a row whose terms cancel has too small a norm for a
// relative error. lse and max are bounded in max abs: 2e-3; sum_exp in relative L2: 2e-3.
// Infinities must match the reference in place and sign. NaN, a missing tensor or different dims
// never agree.
//
// For 8-bit attention (`dtype` is e4m3 or e5m2), with u the largest relative error of rounding
// (1/16, 1/8): o has the bound u, and 4 u for a row. A kernel rounds the weights at another scale
// than the reference and so independently: the root mean square of the error of each is 0.42 u, of
// their difference 0.6 u, and with both roundings of o 0.84 u. amax_s has a bound of 2e-3, for it
// is taken before any rounding, and other amax and gradients 2 u. lse and max have a bound of 2^-10
// of the largest, if that is more: GPUs add up products of 8-bit floats in fewer bits than f32 has.
//
// Tensors that have `sizes` (reference::Gradients::sizes) are gradients. Their bound is 1e-2 for
// bf16 and 2e-3 for f16 over the whole tensor (`dtype` is the attention's, for d_NAME too). Each
// row of dq, dk and dv has the bound of a row of o, and so has each element of d_NAME, since
// neighbours may be sums of unrelated terms. The norm is the larger of the gradient's and its
// sizes': kernels round their terms (P and dS to the dtype, delta through the o it is computed
// from), and where terms cancel (the zero gradient of a bias shared by a whole row, or a single key
// with P = 1), the remaining value does not measure the rounding error, but the root of the sum of
// squares of the terms is.
std::vector<Comparison> compare(const Outputs& outputs, const Outputs& reference, DType dtype,
                                const Outputs& sizes = {});

}  // namespace attn::tools
