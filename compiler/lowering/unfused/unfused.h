// IR -> a program without a fused kernel: for what no fused kernel of cuDNN's computes.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// cuDNN multiplies q by k; kernels of attnc's make the scores of the products, and of these the
// weights and the statistics; cuDNN multiplies the weights by v. Products, scores and weights lie
// in the workspace: 10 bytes for every score, with bf16 or f16. q, k and v are read, and o is
// written, through packed copies, so that every layout works. Nothing is skipped by blocks.
//
// Errors: those of lower(); unsupported for random dropout, whose numbers only cuDNN's fused
// kernels know, and where the scores take too much memory.
Result<plan::Program> lower_unfused(const ir::Attention& attention);

}  // namespace attn::lowering
