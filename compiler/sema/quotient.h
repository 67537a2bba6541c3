// Weights over a sum along the row, in a form that neither overflows nor loses what it divides.
#pragma once

#include <optional>
#include <string>

#include "compiler/ir/attention.h"

namespace attn::sema {

// The form of a weight `numerator` / sum of `denominator`, both expressions of the attention's dag.
struct FoundQuotient {
  ir::ExprId score = 0;  // what weights are a function of
  ir::Quotient quotient{};
};

// Why there is none.
struct NoQuotient {
  bool of_denominator = false;
  std::string why;  // "the sum may be negative"
  std::string help;
};

// `score`: the last score. Adds nodes to the dag. What is proven:
//   - The exponentials are exp(x) or expm1(x) of one x. Numerator and denominator are made of these
//     and of constants by sums, min, max, abs, factors, conditions and choices, so that both are
//     multiplied by exp(-m) if the exponentials and the constants beside them are.
//   - Without exponentials that grow, both are functions of the last score.
//   - The denominator is never negative.
// On failure `no` says why.
std::optional<FoundQuotient> find_quotient(ir::Attention& attention, ir::ExprId score,
                                           ir::ExprId numerator, ir::ExprId denominator,
                                           NoQuotient& no);

}  // namespace attn::sema
