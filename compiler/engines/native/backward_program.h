// The program of attnc's backward kernels: a kernel step, its launches, and what they write.
#pragma once

#include "compiler/engines/native/backward_kernel.h"
#include "compiler/engines/shared/products_backward.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

// The program with the steps of learned sinks, which read nothing per score.
plan::Program program_of(const BackwardKernel& kernel, const LearnedGradients& learned);

}  // namespace attn::engines::native
