// What follows from the sizes: rows and columns have ends, and so have the integers made of them.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/effort.h"

namespace attn::passes {

// The same attention, simplified, with
//   - integers and booleans that can only have one value as that constant
//   - x // n, x % n, n a positive constant, of what is affine in row and column by multiples of n
//     and of an x that stays between two multiples of n, without the division
//   - abs(x) % n where x is known modulo n and that says it: where n divides x, or n is 2
//   - abs, min, max of what has a known sign or order, without them
// Dimensions must be bound; otherwise it is only simplified.
ir::Attention with_ranges(const ir::Attention& attention);

// Without masks that the others imply, as far as that can be shown with boxes of scores (range.h):
// what is no bound of the band is tried, and each side of an `||` likewise. Takes some
// milliseconds; keeps what is left when the effort ends.
ir::Attention without_redundant(const ir::Attention& attention, Effort& effort);
inline ir::Attention without_redundant(const ir::Attention& attention) {
  Effort effort;
  return without_redundant(attention, effort);
}

}  // namespace attn::passes
