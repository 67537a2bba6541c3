// Terms of the score that softmax cancels: what is the same for a whole row changes no weight.
#pragma once

#include <optional>

#include "compiler/ir/attention.h"

namespace attn::passes {

struct Cancelled {
  ir::Attention attention;  // without the term
  ir::ExprId term = 0;      // real, of head and row, in its dag: what lse is too small by
};

// Of a score that adds c * (a * column + b * row + k), where c is known for each head, the part
// c * (b * row + k), so that a kernel computes c * a * column alone: ALiBi's slope * (kv - q)
// becomes slope * kv. Nothing where there is no such part; where the weights of a row do not add up
// to 1 (a sink) or more is known of a row than lse (max, sum_exp, lengths); for one row; and where
// |c * a * column| may be more than kLargestColumnTerm: a sum with that has the rounding error
// 2^-12 in f32, less than that of a weight in bf16. Dimensions must be bound.
inline constexpr double kLargestColumnTerm = 4096;
std::optional<Cancelled> without_cancelled(const ir::Attention& attention);

}  // namespace attn::passes
