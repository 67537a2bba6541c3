// Masks around the diagonal, in the exact shapes that cuDNN recognises and skips the blocks of.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/lowering/cudnn/graph_builder.h"
#include "compiler/lowering/cudnn/lengths.h"
#include "compiler/passes/analysis/band.h"

namespace attn::lowering {

// `score` within the bands of `form`, else -inf; right bounds first, those from the first diagonal
// before those from the last. `lengths` are what `form.from_end` counts by.
Value mask_bands(const ir::Attention& attention, GraphBuilder& builder,
                 const passes::MaskForm& form, const Lengths& lengths, Value score);

}  // namespace attn::lowering
