// Device memory of an execute, apart from the bound tensors.
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"

namespace attn::plan {

// Bytes of device memory.
struct Memory {
  std::int64_t cudnn = 0;    // cuDNN workspace of the largest step
  std::int64_t between = 0;  // internal tensors that each execute recomputes
  std::int64_t once = 0;     // internal tensors computed when the plan is loaded
  std::int64_t iota = 0;     // iota, filled when the plan is loaded

  std::int64_t total() const;  // workspace (Plan::workspace_bytes) and load-time memory
};

Memory memory_of(const Plan& plan);
// Memory without cuDNN's workspace, which is known only once the plan is built.
Memory memory_of(const Program& program);

}  // namespace attn::plan
