// Band masks in the exact forms that cuDNN recognises and skips blocks for.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/lowering/cudnn/graph_builder.h"
#include "compiler/lowering/cudnn/lengths.h"
#include "compiler/passes/analysis/band.h"

namespace attn::lowering {

// `score` within the bands of `form`, else -inf; `form.band` comes before `form.from_end`, which
// counts by `lengths`, and in each the right bound before the left.
Value mask_bands(const ir::Attention& attention, GraphBuilder& builder,
                 const passes::MaskForm& form, const Lengths& lengths, Value score);

}  // namespace attn::lowering
