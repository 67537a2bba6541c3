// IR -> the program that makes gradients.
#pragma once

#include "compiler/gradient/differentiate.h"
#include "compiler/lowering/backward.h"

namespace attn::lowering {

// One cuDNN plan for dq, dk and dv, and what makes the tensors that it needs. Learned tensors are
// not its business. Masks must have been simplified, and dimensions be bound.
//
// Errors: unsupported, with the place and what would work; those of lower().
Result<plan::Program> lower_backward(const BackwardParts& parts);

}  // namespace attn::lowering
