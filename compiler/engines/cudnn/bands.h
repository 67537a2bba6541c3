// Band masks in the exact forms that cuDNN recognises and skips blocks for.
#pragma once

#include "compiler/engines/shared/graph_builder.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/ir/attention.h"
#include "compiler/masks/band.h"

namespace attn::engines {

// `score` within the bands of `form`, else -inf; `form.band` comes before `form.from_end`, which
// counts by `lengths`, and in each the right bound before the left.
Value mask_bands(const ir::Attention& attention, GraphBuilder& builder, const masks::MaskForm& form,
                 const Lengths& lengths, Value score);

}  // namespace attn::engines
