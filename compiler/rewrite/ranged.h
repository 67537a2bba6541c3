// Rewrites that follow from sizes: rows, columns and the integers computed from them are bounded.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/masks/band.h"
#include "compiler/masks/effort.h"
#include "compiler/target/context.h"

namespace attn::rewrite {

// The band around the diagonal that contains everything a mask shows: cuDNN skips the blocks
// outside of a band, whatever else the mask hides.
//
// Adds the cover (MaskAnalysis::cover) to the masks if that pays: if at most 7/8 of the scores
// within the existing bands remain. Shows the same scores. A left bound is only added beside a
// right one: alone it was not measured, and old versions of cuDNN get it wrong. For a `backward`,
// where cuDNN skips nothing to the right of the diagonal (docs/cudnn.md), only a left bound of a
// causal mask is added.
ir::Attention with_bounding_band(const ir::Attention& attention, const target::Context& context,
                                 masks::Effort& effort);

// The same with a new Effort.
inline ir::Attention with_bounding_band(const ir::Attention& attention,
                                        const target::Context& context) {
  masks::Effort effort(context.deadline.get());
  return with_bounding_band(attention, context, effort);
}

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
