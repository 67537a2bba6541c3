// How a modified score is computed for each product q k.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::engines::native {

// What is added to a score: without the product, and linear in the column.
struct Addend {
  ir::ExprId expression = 0;
  bool negative = false;
};

// The score is `weight` times the sum of the expression `root` and `addend_factor` times the
// addends. Constant factors that the root does not have cost nothing: exponentials have a factor
// anyway.
struct Scoring {
  ir::ExprId root = 0;
  double weight = 1;   // positive
  bool scaled = true;  // the root is of the scaled product; else of the product itself, of 16 bits
  std::vector<Addend> addends{};
  double addend_factor = 1;       // positive
  std::optional<double> bound{};  // of the score's absolute value
};
Scoring scoring_of(const ir::Attention& attention);
// The same with nothing but constant factors taken off the root.
Scoring without_factors(const ir::Attention& attention);

// The scale, if it is a positive number.
std::optional<double> positive_scale(const ir::Attention& attention);

}  // namespace attn::engines::native
