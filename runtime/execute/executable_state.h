// What an executable is. Private to this room.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/execute/index_check.h"
#include "runtime/execute/runtime.h"
#include "runtime/execute/steps.h"

namespace attn::execute {

// Members are destroyed last to first: plans before the handles and the context of the runtime.
struct ExecutableState {
  ~ExecutableState();

  // Of device memory that it holds besides cuDNN's and the kernels'.
  std::size_t device_bytes() const {
    return counting.size() + once.size() + (checker ? IndexChecker::kBytes : 0);
  }

  std::shared_ptr<Runtime> runtime;
  plan::Program program;
  plan::Signature signature;
  std::vector<LoadedStep> steps;   // those that run at every execute
  std::vector<std::size_t> order;  // in which they do, loops unrolled: their numbers
  std::int64_t cudnn_bytes = 0;    // of the workspace: the steps run one after another and share it
  plan::InternalPlaces internals;  // behind that
  plan::InternalPlaces made_once;
  std::int64_t workspace_bytes = 0;
  std::size_t plan_bytes = 0;   // of the kernels, and of cuDNN's plans as text
  cuda::DeviceBuffer counting;  // 0, 1, .. for counting operands
  cuda::DeviceBuffer once;      // internal tensors that are made once
  std::optional<IndexChecker> checker;
};

}  // namespace attn::execute
