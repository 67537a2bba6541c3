// Score terms that softmax cancels: a term that is constant along a row changes no weight.
#pragma once

#include <optional>

#include "compiler/ir/attention.h"

namespace attn::rewrite {

struct Cancelled {
  ir::Attention attention;  // without the term
  ir::ExprId term = 0;      // real, of head and row, in its dag: lse lacks it
};

// Removes the part c * (b * row + k) from a score that adds c * (a * column + b * row + k), with c
// known for each head, so that a kernel computes only c * a * column: ALiBi's slope * (kv - q)
// becomes slope * kv. nullopt if there is no such part; if the weights of a row do not add up to 1
// (a sink); with max or sum_exp as outputs, or lengths; for a single row; and if |c * a * column|
// may exceed kLargestColumnTerm: up to there, a sum has the rounding error 2^-12 in f32, less than
// that of a weight in bf16. Dimensions must be bound.
inline constexpr double kLargestColumnTerm = 4096;
std::optional<Cancelled> without_cancelled(const ir::Attention& attention);

}  // namespace attn::rewrite
