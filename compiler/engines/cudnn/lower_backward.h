// Lowers an attention to a program that computes gradients.
#pragma once

#include <string>
#include <vector>

#include "compiler/engines/cudnn/backward.h"
#include "compiler/engines/shared/products_backward.h"
#include "compiler/target/context.h"

namespace attn::engines {

// One cuDNN plan for dq, dk and dv, the steps that produce the tensors it needs, and the steps of
// `learned` after it. `gradients` are the program's outputs, in order. Requires simplified masks,
// bound dimensions, and keys.
//
// Errors: unsupported, with the position and a workaround; those of lower().
Result<plan::Program> lower_backward(const BackwardParts& parts,
                                     const std::vector<std::string>& gradients,
                                     LearnedGradients learned, const target::Context& context);

}  // namespace attn::engines
