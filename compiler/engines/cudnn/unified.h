// Builds the graph of one forward pass as a single attention node, cuDNN's SDPA_FWD.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/masks/band.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Requires bound dimensions. Whether a cuDNN version supports the node is left to cuDNN. Errors:
// those of lower(); unsupported for what the node cannot express: max, sum_exp, dropout by a mask.
Result<plan::CudnnStep> unified(const ir::Attention& attention, const masks::MaskForm& form);

}  // namespace attn::engines
