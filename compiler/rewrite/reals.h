// Index arithmetic in reals: cuDNN's kernels compute // and % of integers some ten times slower
// than floor of a product, and read a vector or a table of results slower than they compute either.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/ir/attention.h"

namespace attn::rewrite {

// Computes comparisons of integers in which something is divided by a positive constant, and
// integers converted to reals, in reals from the indices on (an index as a real costs a kernel less
// than a converted one):
//
//   x // c  ->  floor((x + 0.5) * (1 / c))        x % c  ->  x - c * (x // c)
//
// or floor(x * (1 / c)) if c is a power of two. Exact in f32 and double: every integer is below
// kWholeInReals, so that x + 0.5 is a float, and the product, whose distance from an integer is at
// least 1 / (2 c), is off by less than half of that. Keeps what reads a tensor or param, and what
// would take more than kMostOperations per score. Unchanged if a dimension is open.
inline constexpr int kMostOperations = 40;
inline constexpr std::int64_t kWholeInReals = std::int64_t{1} << 21;
ir::Attention with_real_indices(const ir::Attention& attention);

// ir::to_source of an expression, with `x // c` and `x % c` for what with_real_indices made of
// them: for messages, which quote what the user wrote.
std::string as_written(const ir::Attention& attention, ir::ExprId id);

}  // namespace attn::rewrite
