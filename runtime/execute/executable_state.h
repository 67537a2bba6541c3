// The state of an executable. Internal to runtime/execute.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/execute/index_check.h"
#include "runtime/execute/runtime.h"
#include "runtime/execute/steps.h"

namespace attn::execute {

// Members are destroyed last to first: plans before the runtime's handles and context.
struct ExecutableState {
  ~ExecutableState();

  // Device memory that it holds, besides cuDNN's and the kernels'.
  std::size_t device_bytes() const {
    return iota.size() + once.size() + (checker ? IndexChecker::kBytes : 0);
  }

  std::shared_ptr<Runtime> runtime;
  Runtime::Cudnn* cudnn = nullptr;  // the runtime's, if there are steps of cuDNN's
  plan::Program program;
  plan::Signature signature;
  std::vector<LoadedStep> steps;   // the steps of an execute
  std::vector<std::size_t> order;  // their indices in execution order, loops unrolled
  std::int64_t cudnn_bytes = 0;    // part of the workspace that cuDNN steps share
  plan::InternalPlaces internals;  // after that
  plan::InternalPlaces made_once;
  std::int64_t workspace_bytes = 0;
  std::int64_t scheduled_bytes = 0;      // of the workspace, with a schedule of the caller's
  std::int64_t rows = 0, keys = 0;       // of a sequence, at most: Sq and Skv
  std::optional<std::size_t> scheduled;  // entry of `order` that has a schedule
  std::size_t plan_bytes = 0;            // of the kernels and cuDNN's plan texts
  cuda::DeviceBuffer iota;               // iota for iota operands
  cuda::DeviceBuffer once;               // internal tensors that are computed at load
  std::optional<IndexChecker> checker;
};

}  // namespace attn::execute
