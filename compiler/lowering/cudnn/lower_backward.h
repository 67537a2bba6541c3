// IR -> the program that makes gradients.
#pragma once

#include <string>
#include <vector>

#include "compiler/lowering/cudnn/backward.h"
#include "compiler/lowering/unfused/unfused_backward.h"
#include "compiler/planning/context.h"

namespace attn::lowering {

// One cuDNN plan for dq, dk and dv, what makes the tensors that it needs, and the steps of
// `learned` behind it. `gradients` are the program's outputs, in order. Masks must have been
// simplified, and dimensions be bound, and there must be keys.
//
// Errors: unsupported, with the place and what would work; those of lower().
Result<plan::Program> lower_backward(const BackwardParts& parts,
                                     const std::vector<std::string>& gradients,
                                     LearnedGradients learned,
                                     const planning::Context& context = {});

}  // namespace attn::lowering
