// The band around the diagonal that contains everything a mask shows: cuDNN skips the blocks
// outside of a band, whatever else the mask hides.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/band.h"
#include "compiler/passes/analysis/effort.h"
#include "compiler/planning/context.h"

namespace attn::passes {

// The furthest that a visible score may be from the diagonal, on either side. No bound where the
// corner of the score matrix may be visible, and none at all when nothing is visible or a dimension
// is open.
//
// Found from the expressions (Ranges): boxes of scores, the furthest from the diagonal first, that
// cannot be shown to be hidden are halved until one score is left. Exact for masks of indices and
// constants, unless that takes too many boxes; what captured tensors say is not known here, so that
// anything may be visible where only they decide.
Band cover_of(const ir::Attention& attention, Effort& effort);

// The attention with its cover among its masks, where that makes less work: where it leaves at most
// 7/8 of the scores that the bands there are leave. Shows the same. A left bound is added beside a
// right one alone: by itself it was not measured, and old versions of cuDNN get it wrong. For a
// `backward`, where cuDNN skips nothing to the right of the diagonal (docs/cudnn.md), a bound on
// the left of a causal mask.
ir::Attention with_bounding_band(const ir::Attention& attention, const planning::Context& context,
                                 Effort& effort);

// With an effort of their own.
inline Band cover_of(const ir::Attention& attention) {
  Effort effort;
  return cover_of(attention, effort);
}
inline ir::Attention with_bounding_band(const ir::Attention& attention,
                                        const planning::Context& context = {}) {
  Effort effort;
  return with_bounding_band(attention, context, effort);
}

}  // namespace attn::passes
