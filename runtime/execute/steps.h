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

// Enqueues the launches that are not left out. The arguments must be of these operands. Errors:
// cuda.
Status launch(const LoadedKernels& loaded, const KernelOperands& operands,
              const KernelArguments& arguments, const cuda::Device& device, void* stream);

// The operands of each entry of order_of.
using StepOperands = std::variant<CudnnOperands, KernelOperands>;
std::vector<StepOperands> operands_of(const plan::Program& program, const Memory& memory);

// Arguments of those that are kernel steps, without addresses.
std::vector<KernelArguments> arguments_of(const std::vector<StepOperands>& operands,
                                          std::size_t kept);
// Moves these to other bases, as KernelArguments does. Errors: cuda.
Status prepare(std::vector<KernelArguments>& arguments, const std::vector<StepOperands>& operands,
               const Bases& bases, const cuda::Device& device);
void take(std::vector<KernelArguments>& arguments, const std::vector<StepOperands>& operands,
          const Bases& bases);

// Variant packs of those that are cuDNN's, for these addresses. Errors: cudnn.
Result<std::vector<cudnn::VariantPack>> packs_of(const std::vector<StepOperands>& operands,
                                                 const Bases& bases, const cudnn::Library& library);

}  // namespace attn::execute
