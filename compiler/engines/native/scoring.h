// How a modified score is computed for each product q k.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::engines::native {

// Parts of a score that are linear in the column: a kernel computes each with one multiply-add by
// a constant, from the values at a thread's first column. `expression` is real, without the score:
// at column c + x it is its value at c plus slope * x.
struct Line {
  ir::ExprId expression = 0;
  ir::ExprId slope = 0;  // real, without the column and the score
};

// The largest such parts of `root`, which do not overlap. Adds the slopes to the attention's dag.
// Integers are those whose range is exact in f32.
std::vector<Line> lines_of(ir::Attention& attention, ir::ExprId root);

// The slope of an expression without the score; nullopt if it is not linear in the column. It is 0
// without the column. Adds it to the attention's dag.
std::optional<ir::ExprId> slope_of(ir::Attention& attention, ir::ExprId id);

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
  // A linear attention's weight is this factor times the silu of the score.
  std::optional<double> silu{};
};
Scoring scoring_of(const ir::Attention& attention);
// The same with nothing but constant factors taken off the root.
Scoring without_factors(const ir::Attention& attention);

// Whether a factor of all scores must stay in them: weights of products that are not scaled would
// exceed f16, which ends at 65504, and parts of a quotient are functions of the score itself.
bool exceeds_unscaled(const ir::Attention& attention);

// The scale, if it is a positive number.
std::optional<double> positive_scale(const ir::Attention& attention);

}  // namespace attn::engines::native
