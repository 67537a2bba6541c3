// IR -> program.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// One cuDNN plan: Q K^T, scale, score, residual masks, band masks in the exact shapes whose blocks
// cuDNN skips, softmax with statistics, P V. Masks must have been simplified. Without keys (Skv 0)
// there is nothing to ask cuDNN: a kernel fills the outputs.
//
// Errors: invalid_argument for an open dimension; unsupported, with the place and what would work;
// invalid_spec for what only sizes show to be wrong, with the place.
Result<plan::Program> lower(const ir::Attention& attention);

}  // namespace attn::lowering
