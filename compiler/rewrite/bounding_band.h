// The band around the diagonal that contains everything a mask shows: cuDNN skips the blocks
// outside of a band, whatever else the mask hides.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/masks/band.h"
#include "compiler/masks/effort.h"
#include "compiler/target/context.h"

namespace attn::rewrite {

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

}  // namespace attn::rewrite
