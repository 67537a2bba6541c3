// Lowers an attention to an unfused program, for what no fused cuDNN kernel supports.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// cuDNN multiplies q by k; generated kernels compute the scores from the products, and the weights
// and statistics from the scores; cuDNN multiplies the weights by v. Products, scores and weights
// are in the workspace: 10 bytes per score for bf16 and f16. q, k, v and o go through packed
// copies, so every layout works. No blocks are skipped.
//
// Errors: those of lower(); unsupported for random dropout, and if the scores take too
// much memory.
Result<plan::Program> lower_unfused(const ir::Attention& attention);

}  // namespace attn::engines
