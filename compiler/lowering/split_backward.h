// IR -> a backward program without a fused kernel: for what no fused kernel of cuDNN's
// differentiates.
#pragma once

#include <vector>

#include "compiler/gradient/differentiate.h"
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
// Without keys gradients are zeros (no_keys.h).
//
// Errors: those of lower(); unsupported for random dropout, whose numbers only cuDNN's fused
// kernels know, for the gradient of a paged tensor, and where the scores take too much memory.
Result<plan::Program> lower_split_backward(const ir::Attention& attention);

// The steps that make the outputs d_NAME of Derivatives::tensors, for any backward program, of what
// is bound: q, k, v, lse and do, where a score reads a learned tensor; o, do and lse, where a sink
// does. Names of internal tensors end in ".packed", or begin with "scores.", "rows." or "d_".
struct LearnedGradients {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::Step> steps;
};

// Errors: unsupported for random dropout where a score reads a learned tensor, and where the scores
// take too much memory. Requires keys.
Result<LearnedGradients> learned_gradients(const gradient::Derivatives& derivatives);

}  // namespace attn::lowering
