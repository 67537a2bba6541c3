// The form of an attention that a fused kernel computes at the least cost.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/effort.h"
#include "compiler/planning/context.h"

namespace attn::passes {

// Shows and computes the same: the band that contains the masks among them (bounding_band.h), what
// then follows from the others left out (ranged.h), and index arithmetic in reals (reals.h), each
// where `made` has it. For an open dimension nothing changes.
ir::Attention kernel_form(const ir::Attention& attention, const planning::Context& context,
                          Effort& effort);
inline ir::Attention kernel_form(const ir::Attention& attention,
                                 const planning::Context& context = {}) {
  Effort effort;
  return kernel_form(attention, context, effort);
}

}  // namespace attn::passes
