// The steps of a program, loaded onto a device. Internal to runtime/execute.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/cudnn/execution.h"
#include "runtime/execute/addresses.h"
#include "runtime/execute/plan_kernel.h"
#include "runtime/plan/plan.h"

namespace attn::execute {

using LoadedKernels = std::vector<LoadedLaunch>;
using LoadedStep = std::variant<cudnn::LoadedPlan, LoadedKernels>;

// A loaded step's arguments, of the same kind.
using BoundStep = std::variant<cudnn::VariantPack, KernelArguments>;

// Checks that the plan uses no engine known to compute wrong results. Errors: plan_version.
Status check_engines(const plan::Plan& plan);

// The steps of an execute, in order. `plan` must have a kernel for each step. Errors: cuda, cudnn;
// plan_damaged for a kernel whose parameters differ from the program's.
// `session` may be null for a plan without steps of cuDNN's.
Result<std::vector<LoadedStep>> load_steps(const plan::Plan& plan, const cudnn::Session* session,
                                           const cuda::Device& device);

// The indices of those steps in execution order, loops unrolled.
std::vector<std::size_t> order_of(const plan::Program& program);

// The index in order_of of the step that has a schedule, if one has.
std::optional<std::size_t> scheduled_run(const plan::Program& program);

// Device memory with the `once` internal tensors, computed; null if there are none. Errors: cuda.
Result<cuda::DeviceBuffer> derive_once(const plan::Plan& plan, const cuda::Device& device,
                                       const cuda::AllocatorPointer& allocator = nullptr);

// Where steps are enqueued. `stream` must be the session's, which steps of cuDNN's need.
struct Queue {
  const cuda::Device& device;
  const cudnn::Session* session = nullptr;
  void* stream = nullptr;
};

// Errors: cuda, cudnn.
Status execute_step(const LoadedStep& step, const BoundStep& bound, const Queue& queue);

// The operands of each entry of order_of.
using StepOperands = std::variant<CudnnOperands, KernelOperands>;
std::vector<StepOperands> operands_of(const plan::Program& program, const Memory& memory);

// Binds each of them to these addresses. `library` may be null where none is cuDNN's. Errors:
// cudnn, cuda.
Result<std::vector<BoundStep>> bind_steps(const std::vector<StepOperands>& operands,
                                          const Bases& bases, const cudnn::Library* library,
                                          const cuda::Device& device);

}  // namespace attn::execute
