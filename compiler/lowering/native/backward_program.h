// The program of attnc's backward kernels: a kernel step, its launches, and what they write.
#pragma once

#include "compiler/lowering/native/backward_kernel.h"
#include "compiler/lowering/unfused/unfused_backward.h"
#include "runtime/plan/program.h"

namespace attn::lowering::native {

// The program with the steps of learned sinks, which read nothing per score.
plan::Program program_of(const BackwardKernel& kernel, const LearnedGradients& learned);

}  // namespace attn::lowering::native
