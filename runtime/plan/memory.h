// The device memory that an execute takes beside the tensors that are bound.
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"

namespace attn::plan {

// In bytes.
struct Memory {
  std::int64_t cudnn = 0;     // of cuDNN's kernels: the largest step's
  std::int64_t between = 0;   // internal tensors that every execute makes
  std::int64_t once = 0;      // internal tensors that are made when the plan is loaded
  std::int64_t counting = 0;  // numbers that the runtime makes when it loads the plan

  std::int64_t total() const;  // the workspace (Plan::workspace_bytes), and what is made on load
};

Memory memory_of(const Plan& plan);
// Without cuDNN's, which is known only once the plan has been built.
Memory memory_of(const Program& program);

}  // namespace attn::plan
