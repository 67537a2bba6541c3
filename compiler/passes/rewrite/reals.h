// Index arithmetic in reals: cuDNN's kernels compute // and % of integers some ten times slower
// than floor of a product, and read a vector or a table of results slower than they compute either.
#pragma once

#include <cstdint>

#include "compiler/ir/attention.h"

namespace attn::passes {

// Comparisons of integers in which something is divided by a positive constant, and integers made
// real, computed in reals from the indices on (an index as a real costs a kernel less than one that
// is converted):
//
//   x // c  ->  floor((x + 0.5) * (1 / c))        x % c  ->  x - c * (x // c)
//
// or floor(x * (1 / c)) where c is a power of two.
// Exact in f32 as in double: every integer in them is below kWholeInReals, so that x + 0.5 is a
// float, and the product, whose distance from an integer is at least 1 / (2 c), is off by less than
// half of that. What reads a tensor or param stays, and what would take more than kMostOperations
// for every score. Dimensions must be bound; otherwise nothing changes.
inline constexpr int kMostOperations = 40;
inline constexpr std::int64_t kWholeInReals = std::int64_t{1} << 21;
ir::Attention with_real_indices(const ir::Attention& attention);

}  // namespace attn::passes
