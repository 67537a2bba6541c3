// Lowers an attention to an unfused backward program, for what no fused cuDNN kernel
// differentiates.
#pragma once

#include <vector>

#include "compiler/gradient/differentiate.h"
#include "compiler/target/rewrites.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// cuDNN multiplies q by k and do by v. Generated kernels recompute the scores from the first
// product, the weights from these and lse, and the gradients by the products
// (gradient/differentiate.h) from the second product. cuDNN multiplies these by k and q, and the
// weights by do. All of it is in the workspace: 20 bytes per score for bf16 and f16. Bound tensors
// are read and written through packed copies, so every layout works. o is read only if
// the attention is partial. No blocks are skipped.
//
// If scores would take more than `score_bytes`, or than the sums of learned tensors if those take
// more, they are computed in tiles of half as much, each overwriting the last: at least one group
// of heads that share keys or, if one group exceeds the limit, at least one row of each group; dk
// and dv are then summed over the tiles in f32. There are at most about a thousand tiles, whatever
// they take.
//
// Without keys, gradients are 0 (no_keys.h).
//
// Errors: those of lower(); unsupported for random dropout, for the gradient of a paged
// tensor, and if this takes too much memory.
Result<plan::Program> lower_backward_by_products(
    const ir::Attention& attention, std::int64_t score_bytes = target::kMostScoreBytes);

// The steps that compute the outputs d_NAME of Derivatives::tensors, for any backward program. They
// read the bound q, k, v, lse and do if a score reads a learned tensor; o, do and lse if a sink
// does. Names of internal tensors end in ".packed", or begin with "scores.", "rows." or "d_".
struct LearnedGradients {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::Step> steps;
};

// Gradients of learned tensors, in tiles as above. Errors: unsupported for random dropout if a
// score reads a learned tensor, and if this takes too much memory. Requires keys.
Result<LearnedGradients> learned_gradients(const gradient::Derivatives& derivatives,
                                           std::int64_t score_bytes = target::kMostScoreBytes);

}  // namespace attn::engines
