// Strength reduction: cheaper forms of what a kernel computes for each score.
#pragma once

#include "compiler/ir/attention.h"

namespace attn::engines::native {

// The attention with these rewrites of integers, each exact for every input, wrapped around or not;
// c and n are constants, c < 2^31 - 1 and n > 0:
//
//   abs(x) % 2       -> x % 2
//   abs(x) % n == 0  -> x % n == 0, and the same with !=
//   abs(x) <= c      -> x >= -c && x <= c, which a GPU compares at once; not if x may be -2^31
//   abs(x) > c       -> x > c || x < -c, likewise; and so on for < and >=
//
// Without abs, the low bits of the column that are known at compile time reach the remainder.
// Dimensions must be bound.
ir::Attention with_reduced_strength(const ir::Attention& attention);

}  // namespace attn::engines::native
