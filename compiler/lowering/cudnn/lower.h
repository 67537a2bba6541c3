// IR -> program.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/lowering/cudnn/forward.h"
#include "compiler/planning/context.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// What puts the attention itself to cuDNN: composite() in forward.h, as products, pointwise
// operations and reductions, or unified() in unified.h, as one node. Dimensions are bound.
using Core = Result<plan::CudnnStep> (*)(const ir::Attention& attention);

// One cuDNN plan: Q K^T, scale, score, residual masks, band masks in the exact shapes whose blocks
// cuDNN skips, softmax with statistics, P V; and what makes the tensors that it needs. Masks must
// have been simplified. Without keys (Skv 0) there is nothing to ask cuDNN: a kernel fills the
// outputs.
//
// Errors: invalid_argument for an open dimension; unsupported, with the place and what would work;
// invalid_spec for what only sizes show to be wrong, with the place.
Result<plan::Program> lower(const ir::Attention& attention, const planning::Context& context = {},
                            Core core = composite);

}  // namespace attn::lowering
