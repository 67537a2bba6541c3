// Derivatives of the expressions of an attention, as expressions of the same DAG.
//
// With s the scaled product, s' = score(s, ..), z = sink(..) and a cotangent dO of o, the gradients
// of all inputs follow from these derivatives (P are the weights before dropout; keep is 1 or 0,
// divided by 1 - probability, or 1 without dropout):
//
//   delta[b,h,row]         = sum over d of dO O, minus dlse where the backward reads one
//   dS'[b,h,row,column]    = P (keep (dO V^T) - delta)
//                            or, with a quotient f / sum of g along the row,
//                            (f' keep (dO V^T) - g' delta) / sum, f' and g' being those by s'
//   dS                     = dS' * Derivatives::score
//   dQ = scale dS K;  dK = scale dS^T Q;  dV = (P keep)^T dO    (dK, dV summed over each group)
//   dZ[b,h,row]            = -exp(z - lse) delta
//   d tensor[i]            = sum of dS' * local over all visible (b,h,row,column) where
//                            Gather::load reads index i, for each of TensorGradient::score
//                          + sum of dZ * local over all (b,h,row) where it does, for each of ::sink
//
// With an epilogue, dO is that of o before it: dO * Derivatives::epilogue, of the dO of o after it;
// and d tensor gets the sum of the latter * local for each of TensorGradient::epilogue.
//
// Masks need no derivative: where P is 0, dS' is 0. But there a local derivative may be infinite,
// NaN or without a value (an index out of range), as the score may: it counts at visible scores
// only. In a row that sees nothing, and past the lengths, dS' is 0, and where lse is -inf dZ too,
// whatever dlse is. (A row that sees a sink alone has lse = z, and dZ = dlse.) max, sum_exp and
// lse_without_sink have no cotangent.
//
// Derivatives share the nodes of the forward and of each other. They are exact: the branch that a
// select does not take adds nothing, so its infinities and NaNs reach no derivative. Where a
// function has no derivative, the convention is PyTorch's:
//   - abs at 0: 0; min and max of equal operands: half of each one's (so relu and clamp have a half
//     at their corners, where PyTorch has 0 and 1)
//   - floor, ceil, comparisons and the quotient of `//`: 0
//   - x % y: 1 by x and -floor(x / y) by y
//   - x ** 0.0: 0 by x; 0.0 ** y: 0 by y where y >= 0
//   - sqrt at 0, log1p at -1: inf
//   - atan2 of 0 and 0: NaN by both (0 in newer PyTorch)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::gradient {

// A load through which elements of a learned tensor reach a score or a sink.
struct Gather {
  ir::ExprId load;  // a node of the forward: the tensor is its symbol, the indexes are its operands
  ir::ExprId local;  // real: the derivative by that element; never the constant 0
};

// Without gathers the gradient is zero: the tensor is not read where it could have one.
struct TensorGradient {
  std::string tensor;
  std::vector<Gather> score;  // local depends on b, h, row, column, score, tensors, params
  std::vector<Gather> sink;   // local depends on b, h, tensors, params
  // local depends on b, h, row, depth, output, tensors, params
  std::vector<Gather> epilogue{};
};

// Derivatives of the parts of a quotient by the score that their term is of.
struct QuotientDerivatives {
  ir::ExprId f = 0, g = 0;
};

struct Derivatives {
  // The attention as given, with more nodes in its DAG: existing ids keep their meaning, and the
  // roots are the same. Later passes that renumber (simplify, hoist) lose the derivatives.
  ir::Attention attention;
  ir::ExprId score = 0;                 // real: d s' / d s; the constant 0 when s' does not read s
  std::vector<TensorGradient> tensors;  // of the learned tensors of wanted_gradients, in order
  std::optional<QuotientDerivatives> quotient{};  // beside Attention::quotient
  std::optional<ir::ExprId> epilogue{};           // by the element of o before it
};

// The inputs with a gradient: those of the spec's `grad` clause; without it q, k, v and every
// learned tensor.
std::vector<std::string> wanted_gradients(const ir::Attention& attention);

// Whether the tensor of reals, learned or not, would have a gradient if it were learned: the score
// or the sink depends on its elements, and no mask, index or condition of dropout does.
bool can_learn(const ir::Attention& attention, std::string_view tensor);

// The name of the gradient: "dq" for "q", "d_bias" for "bias".
std::string gradient_name(std::string_view of);

// The attention must be valid (ir::verify), and should be simplified.
Derivatives differentiate(const ir::Attention& attention);

// The loads of the tensor below a real expression, with the derivatives by each that are not 0.
std::vector<Gather> gathers(ir::Dag& dag, ir::ExprId root, std::string_view tensor);

// The derivative of one real expression by one real leaf of it (score or a load), in the same DAG.
ir::ExprId derivative(ir::Dag& dag, ir::ExprId of, ir::ExprId by);

}  // namespace attn::gradient
