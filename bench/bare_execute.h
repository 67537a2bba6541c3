// Bare cudnnBackendExecute with a cached variant pack: the baseline for the runtime's host time.
// Internal tensors hold zeros, since only host time is measured.
#pragma once

#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/cudnn/execution.h"
#include "runtime/execute/arguments.h"
#include "runtime/execute/executable.h"
#include "runtime/execute/scalars.h"
#include "runtime/plan/plan.h"

namespace attn::bench {

// Owns its handle, plans, variant packs and workspace. Not thread-safe.
class BareExecute {
 public:
  // `arguments` must be ones that Executable::bind accepts. Errors: cuda, cudnn.
  static Result<BareExecute> create(const plan::Plan& plan, const execute::LoadOptions& options,
                                    const execute::Arguments& arguments);

  Status execute(void* stream);

 private:
  struct Step {
    cudnn::LoadedPlan plan;
    cudnn::VariantPack pack;
  };

  BareExecute(cuda::DeviceBuffer workspace, cuda::DeviceBuffer iota, cuda::DeviceBuffer internals,
              execute::Scalars scalars, cudnn::Session session, std::vector<Step> steps);

  cuda::DeviceBuffer workspace_;
  cuda::DeviceBuffer iota_;
  cuda::DeviceBuffer internals_;
  execute::Scalars scalars_;
  cudnn::Session session_;
  std::vector<Step> steps_;
};

}  // namespace attn::bench
