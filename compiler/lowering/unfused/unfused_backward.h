// IR -> a backward program without a fused kernel: for what no fused kernel of cuDNN's
// differentiates.
#pragma once

#include <vector>

#include "compiler/gradient/differentiate.h"
#include "compiler/planning/rewrites.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// cuDNN multiplies q by k and do by v; kernels of attnc's make the scores anew of the first
// product, of these and lse the weights, and of the second product the gradients by the products,
// as gradient/differentiate.h has them; cuDNN multiplies these by k and q, and the weights by do.
// All lies in the workspace: 20 bytes for every score, with bf16 or f16. What is bound is read and
// written through packed copies, so that every layout works. o is not read. Nothing is skipped by
// blocks.
//
// Where scores would take more than `score_bytes`, or than what sums into learned tensors take if
// that is more, they are made, used and overwritten in tiles of half as much: some groups of heads
// that share keys, one at least; or where one group takes more than all may, some rows of each
// group, one at least, and dk and dv are then summed over the tiles in f32. There are no more than
// about a thousand tiles, whatever they take.
//
// Without keys gradients are zeros (no_keys.h).
//
// Errors: those of lower(); unsupported for random dropout, whose numbers only cuDNN's fused
// kernels know, for the gradient of a paged tensor, and where all of it takes too much memory.
Result<plan::Program> lower_unfused_backward(const ir::Attention& attention,
                                             std::int64_t score_bytes = planning::kMostScoreBytes);

// The steps that make the outputs d_NAME of Derivatives::tensors, for any backward program, of what
// is bound: q, k, v, lse and do, where a score reads a learned tensor; o, do and lse, where a sink
// does. Names of internal tensors end in ".packed", or begin with "scores.", "rows." or "d_".
struct LearnedGradients {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::Step> steps;
};

// In tiles as above. Errors: unsupported for random dropout where a score reads a learned tensor,
// and where all of it takes too much memory. Requires keys.
Result<LearnedGradients> learned_gradients(const gradient::Derivatives& derivatives,
                                           std::int64_t score_bytes = planning::kMostScoreBytes);

}  // namespace attn::lowering
