// The text of attnc's backward kernels (attn/backward.cuh).
#pragma once

#include <string>

#include "compiler/engines/native/backward_kernel.h"

namespace attn::engines::native {

// CUDA C++, with all kernels of the step.
std::string source_of(const BackwardKernel& kernel);

}  // namespace attn::engines::native
