// Builds the graph of one forward pass from products, pointwise operations and reductions.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/masks/band.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Requires bound dimensions. Errors: those of lower().
Result<plan::CudnnStep> composite(const ir::Attention& attention, const masks::MaskForm& form);

}  // namespace attn::engines
