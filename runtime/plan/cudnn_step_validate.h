// Checks the steps that are cuDNN graphs. Internal to runtime/plan.
#pragma once

#include "runtime/plan/program_so_far.h"

namespace attn::plan {

// Checks the graph and what its tensors are bound to, and notes what it writes.
Status check_cudnn_step(std::size_t index, const CudnnStep& step, ProgramSoFar& so_far);

}  // namespace attn::plan
