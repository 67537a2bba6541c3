// Comparison of outputs with the reference, tensor by tensor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
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

// The types that the bounds follow from: of q, k and v, of o, of do, and of dq, dk and dv.
struct Types {
  DType dtype, o, d_o, gradients;
  bool makes_rows = false;  // of q or k, which are rounded

  Types(DType all) : dtype(all), o(all), d_o(all), gradients(all) {}  // NOLINT(*-explicit-*)
  explicit Types(const ir::Attention& attention);
};

// Returns one comparison for each tensor of the reference that has elements.
//
// o is bounded in relative L2, over the whole tensor (4e-3 for bf16, 1e-3 for
// f16) and over each row along the last dimension (3e-2, 8e-3). A row's norm counts as at least
// 1e-2 of the root mean square of all rows: a row whose terms cancel has too small a norm for a
// relative error. lse and max are bounded in max abs: 2e-3, or 2^-21 of the largest if that is
// more, 4 to 8 times the distance of f32 numbers there; sum_exp in relative L2: 2e-3, or what twice
// that error of scores makes of it. Infinities must match the reference in place and sign. NaN, a
// missing tensor or different dims never agree.
//
// For 8-bit attention the bounds follow from u, the largest relative error of rounding to a type:
// 1/16 for e4m3, 1/8 for e5m2, and 0 for 16 bits. Each rounding of a kernel that is independent of
// the reference's adds 0.6 u, the root mean square of their difference (0.42 u each), to a tensor's
// relative L2, and those of different roundings add as squares. o has two, of the weights, which a
// kernel rounds at another scale than the reference, and of itself: 0.6 r, with r the root of the
// sum of the squares of both u; its bound is 0.71 r, which is u for one type. dq and dk have those
// of ds, of themselves and, through delta, of o; dv of the weights and of itself. Kernels round
// these at the reference's scales, so that most agree, or keep 16 bits of weights and ds, so that
// the reference's rounding remains (0.42 u); their bound is r. A row's bound is 4 times that of its
// tensor. Small elements of 8 bits are multiples of a step s, 2^-9 of e4m3 and 2^-16 of e5m2, so
// that their error is not relative: two roundings are off by up to s / 2, s / sqrt(12) root mean
// square, and so differ by s / sqrt(6) where what they round does not agree. A row whose elements
// differ by that much is within its bound, whatever its norm. amax_s has a bound of 2e-3, for it is
// taken before any rounding; of the others, a single element is twice as far off as the tensor: 2 u
// of the weights for amax_o, 2 u of o or of the weights that it is made of for amax_dp, and twice
// the bound of the gradient for its amax; of both, the norm is that of their `sizes` at least,
// where all terms cancel: 2^-8 of that of the terms, or with an o of 8 bits 0.3 of it but for dv,
// since roundings of o let delta differ by 0.6 u of its terms, and these bounds are 2 u or more.
// lse and max have a bound of 2^-10 of the largest instead of 2^-21: GPUs add up products of 8-bit
// floats in fewer bits than f32 has. With a prologue they have that bound, too: what it makes is
// rounded, and a number in the middle of two may be rounded to the other one.
//
// Tensors that have `sizes` (reference::Gradients::sizes) are gradients. Their bound is 1e-2 for
// bf16 and 2e-3 for f16 over the whole tensor (by the type of q, for d_NAME too). Each
// row of dq, dk and dv has the bound of a row of o, and so has each element of d_NAME, since
// neighbours may be sums of unrelated terms. The norm is the larger of the gradient's and its
// sizes': kernels round their terms (P and dS to the dtype, delta through the o it is computed
// from), and where terms cancel (the zero gradient of a bias shared by a whole row, or a single key
// with P = 1), the remaining value does not measure the rounding error, but the root of the sum of
// squares of the terms is.
std::vector<Comparison> compare(const Outputs& outputs, const Outputs& reference,
                                const Types& types, const Outputs& sizes = {});

}  // namespace attn::tools
