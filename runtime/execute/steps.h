// The steps of a program, loaded onto a device. Private to this room.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "runtime/cuda/kernel.h"
#include "runtime/cuda/memory.h"
#include "runtime/cudnn/execution.h"
#include "runtime/execute/addresses.h"
#include "runtime/plan/plan.h"

namespace attn::execute {

struct LoadedKernel {
  cuda::Kernel kernel;
  std::int64_t threads = 0;
};
using LoadedStep = std::variant<cudnn::LoadedPlan, LoadedKernel>;

// What a loaded step is executed with, of the same kind.
using BoundStep = std::variant<cudnn::VariantPack, KernelArguments>;

// Whether cuDNN's engines are not known to compute wrong values. Errors: plan_version.
Status check_engines(const plan::Plan& plan);

// The steps that run at every execute, in order. `plan` must be whole: a kernel for each step.
// Errors: cuda, cudnn; plan_damaged for a kernel with other parameters than the program lists.
Result<std::vector<LoadedStep>> load_steps(const plan::Plan& plan, const cudnn::Session& session,
                                           const cuda::Device& device);

// The order in which an execute runs those, loops unrolled: the number of each.
std::vector<std::size_t> order_of(const plan::Program& program);

// Device memory with the internal tensors that are made once, made; null when there are none.
// Errors: cuda.
Result<cuda::DeviceBuffer> derive_once(const plan::Plan& plan, const cuda::Device& device,
                                       const cuda::AllocatorPointer& allocator = nullptr);

// Enqueues on `stream`, which is the session's. Errors: cuda, cudnn.
Status execute_step(const LoadedStep& step, const BoundStep& bound, const cudnn::Session& session,
                    void* stream);

// What each of order_of is bound to.
using StepOperands = std::variant<CudnnOperands, KernelOperands>;
std::vector<StepOperands> operands_of(const plan::Program& program, const Memory& memory);

// Each of them, at these addresses. Errors: cudnn.
Result<std::vector<BoundStep>> bind_steps(const std::vector<StepOperands>& operands,
                                          const Bases& bases, const cudnn::Library& library);

}  // namespace attn::execute
