// The text of attnc's backward kernels (attn/backward.cuh).
#pragma once

#include <string>

#include "compiler/lowering/native/backward_kernel.h"

namespace attn::lowering::native {

// CUDA C++, with all kernels of the step.
std::string source_of(const BackwardKernel& kernel);

}  // namespace attn::lowering::native
