// Parts of a score that are linear in the column: a kernel computes each with one multiply-add by
// a constant, from the values at a thread's first column.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::engines::native {

// A real expression without the score: at column c + x it is its value at c plus slope * x.
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

}  // namespace attn::engines::native
