// Rewrites that follow from sizes: rows, columns and the integers computed from them are bounded.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/masks/effort.h"
#include "compiler/target/context.h"

namespace attn::rewrite {

// The simplified attention, in which
//   - integers and booleans with a single possible value are constants
//   - x // n and x % n, n a positive constant, do not divide if x is affine in row and column with
//     multiples of n as factors, or stays between two multiples of n
//   - abs(x) % n is a constant if x is known modulo n, and n divides x or is 2
//   - abs, min and max of operands with a known sign or order are replaced by the result
// Dimensions must be bound; otherwise it is only simplified.
ir::Attention with_ranges(const ir::Attention& attention);

// Removes masks that the others imply, as far as boxes of scores (range.h) can prove it. Tries
// every mask that is not a band bound, and each side of an `||`. Takes some milliseconds; when the
// effort ends, the remaining masks are kept.
ir::Attention without_redundant(const ir::Attention& attention, const target::Context& context,
                                masks::Effort& effort);
inline ir::Attention without_redundant(const ir::Attention& attention,
                                       const target::Context& context) {
  masks::Effort effort(context.deadline.get());
  return without_redundant(attention, context, effort);
}

}  // namespace attn::rewrite
