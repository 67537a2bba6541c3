// The graph of one forward pass in which attention is one node, which cuDNN knows as SDPA_FWD.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// Requires bound dimensions. What a cuDNN version takes of it is for cuDNN to say. Errors: those of
// lower(); unsupported for what the node has no place for: max, sum_exp, dropout by a mask.
Result<plan::CudnnStep> unified(const ir::Attention& attention);

}  // namespace attn::lowering
