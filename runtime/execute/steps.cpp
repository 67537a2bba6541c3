#include "runtime/execute/steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/cuda/stream.h"
#include "runtime/cudnn/known_bad.h"
#include "runtime/execute/plan_kernel.h"

namespace attn::execute {
namespace {

bool is_made_once(const plan::Step& step) {
  const auto* derive = std::get_if<plan::DeriveStep>(&step);
  return derive != nullptr && derive->once;
}

std::vector<plan::Run> repeated_runs(const plan::Program& program) {
  std::vector<plan::Run> runs = plan::runs_of(program);
  std::erase_if(runs,
                [&program](const plan::Run& run) { return is_made_once(program.steps[run.step]); });
  return runs;
}

// Plans compiled before a cuDNN bug was known may still use the faulty engine.
Status check_engine(const plan::Plan& plan, const plan::CudnnStep& step,
                    const plan::CompiledStep& compiled) {
  const cudnn::Circumstances circumstances{plan.cudnn_version, plan.target.sm,
                                           cudnn::features_of(step.graph)};
  const cudnn::KnownBad* bad = cudnn::find_known_bad(circumstances);
  if (bad == nullptr) bad = cudnn::find_known_bad(circumstances, compiled.engine);
  if (bad == nullptr) return {};
  return Error{ErrorCode::plan_version,
               fmt::format("the plan uses engine {} of cuDNN: {}", compiled.engine, bad->what),
               {"compile the spec again, or `attnc compile --recompile` the plan",
                fmt::format("source: {}", bad->source)}};
}

Result<LoadedStep> load_cudnn(const plan::CompiledStep& compiled, const cudnn::Session& session) {
  ATTN_ASSIGN(cudnn::LoadedPlan loaded, cudnn::LoadedPlan::load(session, compiled.cudnn_plan));
  return LoadedStep(std::move(loaded));
}

// The most that launches of a kernel take; the limit belongs to the kernel, not to a launch.
std::int64_t most_shared_bytes(const plan::KernelStep& step, const std::string& kernel) {
  std::int64_t most = 0;
  for (const plan::Launch& launch : step.launches) {
    if (launch.kernel == kernel) most = std::max(most, launch.shared_bytes);
  }
  return most;
}

Result<LoadedKernels> load_kernels(const plan::KernelStep& step, const std::string& image,
                                   const cuda::Device& device) {
  ATTN_ASSIGN(const cuda::Module module, cuda::Module::load(device, image));
  LoadedKernels loaded;
  for (const plan::Launch& launch : step.launches) {
    ATTN_ASSIGN(LoadedLaunch each, load_launch(module, launch));
    ATTN_RETURN_IF_ERROR(each.kernel.allow_shared_bytes(most_shared_bytes(step, launch.kernel)));
    loaded.push_back(std::move(each));
  }
  return loaded;
}

}  // namespace

Status check_engines(const plan::Plan& plan) {
  auto compiled = plan.compiled.begin();
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(plan.program)) {
    if (compiled == plan.compiled.end()) break;
    ATTN_RETURN_IF_ERROR(check_engine(plan, *step, *compiled++));
  }
  return {};
}

Result<std::vector<LoadedStep>> load_steps(const plan::Plan& plan, const cudnn::Session* session,
                                           const cuda::Device& device) {
  std::vector<LoadedStep> loaded;
  auto compiled = plan.compiled.begin();
  auto image = plan.kernels.begin();
  for (const plan::Step& step : plan.program.steps) {
    if (std::holds_alternative<plan::CudnnStep>(step)) {
      ATTN_ASSIGN(LoadedStep made, load_cudnn(*compiled++, *session));
      loaded.push_back(std::move(made));
      continue;
    }
    const std::string& bytes = *image++;
    if (is_made_once(step)) continue;
    ATTN_ASSIGN(LoadedKernels kernels,
                load_kernels(plan::launched(plan.program, step), bytes, device));
    loaded.emplace_back(std::move(kernels));
  }
  return loaded;
}

std::vector<std::size_t> order_of(const plan::Program& program) {
  std::vector<std::size_t> numbers;  // index of each step among the loaded ones
  std::size_t loaded = 0;
  for (const plan::Step& step : program.steps) {
    numbers.push_back(loaded);
    if (!is_made_once(step)) ++loaded;
  }
  std::vector<std::size_t> order;
  for (const plan::Run& run : repeated_runs(program)) order.push_back(numbers[run.step]);
  return order;
}

std::optional<std::size_t> scheduled_run(const plan::Program& program) {
  const std::vector<plan::Run> runs = repeated_runs(program);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto* step = std::get_if<plan::KernelStep>(&program.steps[runs[i].step]);
    if (step != nullptr && step->schedule) return i;
  }
  return std::nullopt;
}

Result<cuda::DeviceBuffer> derive_once(const plan::Plan& plan, const cuda::Device& device,
                                       const cuda::AllocatorPointer& allocator) {
  const plan::InternalPlaces places = plan::internal_places(plan.program, true);
  ATTN_ASSIGN(
      cuda::DeviceBuffer buffer,
      cuda::DeviceBuffer::allocate(device, static_cast<std::size_t>(places.bytes), allocator));
  if (places.bytes == 0) return buffer;
  Scalars scalars(plan.program, {});
  Memory memory(plan.program, scalars);
  memory.add_internals(places, buffer.data());
  ATTN_ASSIGN(const cuda::Stream stream, cuda::Stream::create(device));
  auto image = plan.kernels.begin();
  for (const plan::Step& step : plan.program.steps) {
    if (std::holds_alternative<plan::CudnnStep>(step)) continue;
    const std::string& bytes = *image++;
    if (!is_made_once(step)) continue;
    const plan::KernelStep kernels = plan::launched(plan.program, step);
    ATTN_ASSIGN(const LoadedKernels loaded, load_kernels(kernels, bytes, device));
    const KernelOperands operands(kernels, memory);
    ATTN_ASSIGN(const KernelArguments arguments, KernelArguments::make(operands, {}, device));
    ATTN_RETURN_IF_ERROR(launch(loaded, operands, arguments, device, stream.handle()));
    ATTN_RETURN_IF_ERROR(stream.synchronize());
  }
  return buffer;
}

Status launch(const LoadedKernels& loaded, const KernelOperands& operands,
              const KernelArguments& arguments, const cuda::Device& device, void* stream) {
  for (std::size_t i = 0; i < arguments.zeroed.size(); ++i) {
    void* const address = arguments.zeroed[i];
    if (address == nullptr) continue;
    ATTN_RETURN_IF_ERROR(cuda::zero(device, stream, address, operands.zeroed[i].bytes));
  }
  for (std::size_t i = arguments.first; i < arguments.launches.size(); ++i) {
    const LoadedLaunch& each = loaded[i];
    cuda::LaunchShape shape = each.shape;
    if (i == arguments.first) shape.overlaps = false;  // the launch before it may be a caller's
    ATTN_RETURN_IF_ERROR(each.kernel.launch(stream, shape, arguments.launches[i].data()));
  }
  return {};
}

std::vector<StepOperands> operands_of(const plan::Program& program, const Memory& memory) {
  std::vector<plan::KernelStep> kernels(program.steps.size());  // empty for cuDNN's
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const bool cudnn = std::holds_alternative<plan::CudnnStep>(program.steps[i]);
    if (!cudnn) kernels[i] = plan::launched(program, program.steps[i]);
  }
  std::vector<StepOperands> operands;
  for (const auto& [number, turn] : repeated_runs(program)) {
    if (const auto* cudnn = std::get_if<plan::CudnnStep>(&program.steps[number])) {
      operands.emplace_back(CudnnOperands(*cudnn, memory, turn));
    } else {
      operands.emplace_back(KernelOperands(kernels[number], memory, turn));
    }
  }
  return operands;
}

std::vector<KernelArguments> arguments_of(const std::vector<StepOperands>& operands,
                                          std::size_t kept) {
  std::vector<KernelArguments> arguments;
  for (const StepOperands& step : operands) {
    const auto* kernel = std::get_if<KernelOperands>(&step);
    if (kernel != nullptr) arguments.emplace_back(*kernel, kept);
  }
  return arguments;
}

Status prepare(std::vector<KernelArguments>& arguments, const std::vector<StepOperands>& operands,
               const Bases& bases, const cuda::Device& device) {
  auto next = arguments.begin();
  for (const StepOperands& step : operands) {
    const auto* kernel = std::get_if<KernelOperands>(&step);
    if (kernel != nullptr) ATTN_RETURN_IF_ERROR((next++)->prepare(*kernel, bases, device));
  }
  return {};
}

void take(std::vector<KernelArguments>& arguments, const std::vector<StepOperands>& operands,
          const Bases& bases) {
  auto next = arguments.begin();
  for (const StepOperands& step : operands) {
    const auto* kernel = std::get_if<KernelOperands>(&step);
    if (kernel != nullptr) (next++)->take(*kernel, bases);
  }
}

Result<std::vector<cudnn::VariantPack>> packs_of(const std::vector<StepOperands>& operands,
                                                 const Bases& bases,
                                                 const cudnn::Library& library) {
  std::vector<cudnn::VariantPack> packs;
  for (const StepOperands& step : operands) {
    const auto* cudnn = std::get_if<CudnnOperands>(&step);
    if (cudnn == nullptr) continue;
    ATTN_ASSIGN(
        cudnn::VariantPack pack,
        cudnn::VariantPack::create(library, cudnn->uids, cudnn->addresses(bases), bases.workspace));
    packs.push_back(std::move(pack));
  }
  return packs;
}

}  // namespace attn::execute
