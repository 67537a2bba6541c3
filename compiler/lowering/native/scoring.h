// How a modified score is computed for each product q k.
#pragma once

#include <optional>

#include "compiler/ir/attention.h"

namespace attn::lowering::native {

// The score is `weight` times the expression `root`. Constant factors that the root does not have
// cost nothing: exponentials have a factor anyway.
struct Scoring {
  ir::ExprId root = 0;
  double weight = 1;              // positive
  bool scaled = true;             // the root is of the scaled product; else of the product itself
  std::optional<double> bound{};  // of the score's absolute value
};
Scoring scoring_of(const ir::Attention& attention);

// The scale, if it is a positive number.
std::optional<double> positive_scale(const ir::Attention& attention);

}  // namespace attn::lowering::native
