// Derivatives of the expressions of an attention, as expressions of the same DAG.
//
// With s the scaled product, s' = score(s, ..) and z = sink(..), and for a cotangent dO of o, the
// gradients of all inputs follow from what stands here (P are the weights before dropout, keep is 1
// or 0, divided by 1 - probability; 1 without dropout):
//
//   delta[b,h,row]         = sum over d of dO O
//   dS'[b,h,row,column]    = P (keep (dO V^T) - delta)
//   dS                     = dS' * Derivatives::score
//   dQ = scale dS K;  dK = scale dS^T Q;  dV = (P keep)^T dO    (dK, dV summed over each group)
//   dZ[b,h,row]            = -exp(z - lse) delta
//   d tensor[i]            = sum of dS' * local over all (b,h,row,column), visible, at which the
//                            gather of Gather::load has the index i, for each of
//                            TensorGradient::score
//                          + sum of dZ * local over all (b,h,row) at which .., for each of ::sink
//
// Masks need no derivative: where P is 0, dS' is 0. But a local derivative may there be infinite,
// NaN or without a value (an index out of range), as the score may: it counts at visible scores
// only. In a row that sees nothing, and behind the end of lengths, dS' and dZ are 0. lse, max and
// sum_exp have no cotangent.
//
// Sharing: derivatives use the nodes of the forward, and each other's. Exact: nothing is said of
// the branch that a select does not take, so its infinities and NaNs pass into no derivative. Where
// a function has none, the convention is PyTorch's:
//   - abs at 0 has 0; min and max of equal operands have half of each one's (relu and clamp are
//     made of them: a half at their corners, where PyTorch has 0 and 1)
//   - floor, ceil, comparisons and the quotient of `//` have 0
//   - x % y has 1 by x and -floor(x / y) by y
//   - x ** 0.0 has 0 by x; 0.0 ** y has 0 by y where y >= 0
//   - sqrt at 0 has inf
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::gradient {

// One way by which elements of a learned tensor reach a score or a sink.
struct Gather {
  ir::ExprId load;  // a node of the forward: the tensor is its symbol, the indexes are its operands
  ir::ExprId local;  // real: the derivative by that element; never the constant 0
};

// No gathers at all: the gradient is zero, because the tensor is not read where it could have one.
struct TensorGradient {
  std::string tensor;
  std::vector<Gather> score;  // local is of b, h, row, column, score, tensors and params
  std::vector<Gather> sink;   // of b, h, tensors and params
};

struct Derivatives {
  // As given, with more nodes in its DAG: ids of the attention given keep their meaning, and its
  // roots are the same. Later passes that renumber (simplify, hoist) forget the derivatives.
  ir::Attention attention;
  ir::ExprId score = 0;                 // real: d s' / d s; the constant 0 when s' does not read s
  std::vector<TensorGradient> tensors;  // of the learned ones of wanted_gradients, in its order
};

// What has a gradient: what the spec's `grad` lists; without the clause q, k, v and every learned
// tensor.
std::vector<std::string> wanted_gradients(const ir::Attention& attention);

// What it is called: "dq" of "q", "d_bias" of "bias".
std::string gradient_name(std::string_view of);

// The attention must be valid (ir::verify), and is best simplified before.
Derivatives differentiate(const ir::Attention& attention);

// The derivative of one real expression by one real leaf of it (score or a load), in the same DAG.
ir::ExprId derivative(ir::Dag& dag, ir::ExprId of, ir::ExprId by);

}  // namespace attn::gradient
