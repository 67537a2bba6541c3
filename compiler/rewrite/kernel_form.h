// The form of an attention that a fused kernel computes at the lowest cost.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/masks/effort.h"
#include "compiler/target/context.h"

namespace attn::rewrite {

// An equivalent attention with the band that contains its masks added to them (bounding_band.h),
// masks that the others imply removed (ranged.h), and index arithmetic in reals (reals.h), each if
// `made` enables it. Unchanged if a dimension is open.
ir::Attention kernel_form(const ir::Attention& attention, const target::Context& context,
                          masks::Effort& effort);
inline ir::Attention kernel_form(const ir::Attention& attention, const target::Context& context) {
  masks::Effort effort(context.deadline.get());
  return kernel_form(attention, context, effort);
}

}  // namespace attn::rewrite
