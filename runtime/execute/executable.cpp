#include "runtime/execute/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/cudnn/execution.h"
#include "runtime/cudnn/known_wrong.h"
#include "runtime/execute/addresses.h"
#include "runtime/execute/checks.h"
#include "runtime/execute/scalars.h"

namespace attn::execute {

// Members are destroyed last to first: plans before their handle, the handle before its context.
struct Executable::State {
  plan::Program program;
  cuda::Device device;
  cudnn::Session session;
  std::vector<cudnn::LoadedPlan> plans;  // one a step
  std::int64_t workspace_bytes = 0;
  cuda::DeviceBuffer counting;  // 0, 1, .. for the plans' counting operands
};

struct Binding::State {
  std::shared_ptr<Executable::State> owner;
  Scalars scalars;
  std::vector<Addresses> addresses;  // one a step
  cuda::DeviceBuffer own_workspace;
  void* workspace = nullptr;
  std::vector<cudnn::VariantPack> packs;  // one a step

  Status make_packs(void* new_workspace);
};

Status Binding::State::make_packs(void* new_workspace) {
  std::vector<cudnn::VariantPack> made;
  for (const Addresses& step : addresses) {
    ATTN_ASSIGN(cudnn::VariantPack pack,
                cudnn::VariantPack::create(owner->session.library(), step.uids, step.pointers,
                                           new_workspace));
    made.push_back(std::move(pack));
  }
  packs = std::move(made);
  workspace = new_workspace;
  return {};
}

Executable::Executable(std::shared_ptr<State> state) : state_(std::move(state)) {}
Executable::Executable(Executable&&) noexcept = default;
Executable& Executable::operator=(Executable&&) noexcept = default;
Executable::~Executable() = default;

Binding::Binding(std::unique_ptr<State> state) : state_(std::move(state)) {}
Binding::Binding(Binding&&) noexcept = default;
Binding& Binding::operator=(Binding&&) noexcept = default;
Binding::~Binding() = default;

namespace {

Status check_plan(const plan::Plan& plan) {
  if (Status status = plan::validate(plan.program); !status.ok()) {
    Error error = status.error();
    error.code = ErrorCode::plan_damaged;
    return error;
  }
  if (plan.compiled.size() == plan.program.steps.size()) return {};
  return Status(ErrorCode::plan_damaged,
                fmt::format("the plan has {} steps but kernels for {}", plan.program.steps.size(),
                            plan.compiled.size()));
}

// A plan from before a fault of cuDNN's was known still has the engine at fault in it.
Status check_engine(const plan::Step& step, const plan::CompiledStep& compiled) {
  const std::string_view fault = cudnn::known_wrong(cudnn_step(step).graph, compiled.engine);
  if (fault.empty()) return {};
  return Error{ErrorCode::plan_version,
               fmt::format("the plan uses engine {} of cuDNN: {}", compiled.engine, fault),
               {"compile the spec again, or run with --recompile"},
               {}};
}

Result<std::vector<cudnn::LoadedPlan>> load_steps(const plan::Plan& plan,
                                                  const cudnn::Session& session) {
  std::vector<cudnn::LoadedPlan> plans;
  for (std::size_t i = 0; i < plan.compiled.size(); ++i) {
    const plan::CompiledStep& step = plan.compiled[i];
    ATTN_RETURN_IF_ERROR(check_engine(plan.program.steps[i], step));
    ATTN_ASSIGN(cudnn::LoadedPlan loaded, cudnn::LoadedPlan::load(session, step.cudnn_plan));
    plans.push_back(std::move(loaded));
  }
  return plans;
}

Status foreign_binding() {
  return Status(ErrorCode::binding, "the binding was made by another executable");
}

}  // namespace

Result<Executable> Executable::load(const plan::Plan& plan, const LoadOptions& options) {
  ATTN_RETURN_IF_ERROR(check_plan(plan));
  ATTN_ASSIGN(cuda::Device device, cuda::Device::open(options.device));
  ATTN_RETURN_IF_ERROR(check_device(plan, device.name(), device.sm()));
  ATTN_ASSIGN(auto library, cudnn::Library::load(options.cudnn_folder));
  ATTN_RETURN_IF_ERROR(check_version(plan, library->version()));
  ATTN_ASSIGN(cudnn::Session session, cudnn::Session::create(std::move(library)));
  ATTN_ASSIGN(std::vector<cudnn::LoadedPlan> plans, load_steps(plan, session));
  ATTN_ASSIGN(cuda::DeviceBuffer counting, counting_numbers(plan.program, device));
  std::int64_t workspace_bytes = 0;  // the steps run one after another and share it
  for (const cudnn::LoadedPlan& step : plans) {
    workspace_bytes = std::max(workspace_bytes, step.workspace_bytes());
  }
  return Executable(
      std::make_shared<State>(State{plan.program, std::move(device), std::move(session),
                                    std::move(plans), workspace_bytes, std::move(counting)}));
}

Result<Executable> Executable::load_file(const std::string& path, const LoadOptions& options) {
  ATTN_ASSIGN(const plan::Plan plan, plan::load(path));
  return load(plan, options);
}

const plan::Program& Executable::program() const { return state_->program; }
const cuda::Device& Executable::device() const { return state_->device; }
std::int64_t Executable::cudnn_version() const { return state_->session.library().version(); }
std::int64_t Executable::workspace_bytes() const { return state_->workspace_bytes; }
Status Executable::make_current() const { return state_->device.make_current(); }

Result<Binding> Executable::bind(const Arguments& arguments, void* workspace) const {
  ATTN_RETURN_IF_ERROR(make_current());
  const int device = state_->device.ordinal();
  ATTN_RETURN_IF_ERROR(check_arguments(state_->program, arguments, device, cuda::classify));
  auto state = std::make_unique<Binding::State>(
      Binding::State{state_, Scalars(state_->program, arguments), {}, {}, nullptr, {}});
  if (workspace != nullptr) {
    ATTN_RETURN_IF_ERROR(
        check_workspace(workspace, state_->workspace_bytes, device, cuda::classify));
  } else {
    ATTN_ASSIGN(state->own_workspace,
                cuda::DeviceBuffer::allocate(state_->device,
                                             static_cast<std::size_t>(state_->workspace_bytes)));
    workspace = state->own_workspace.data();
  }
  for (const plan::Step& step : state_->program.steps) {
    state->addresses.push_back(
        addresses_of(cudnn_step(step), arguments, state->scalars, state_->counting.data()));
  }
  ATTN_RETURN_IF_ERROR(state->make_packs(workspace));
  return Binding(std::move(state));
}

Status Executable::execute(const Binding& binding, void* stream) {
  State& state = *state_;
  if (binding.state_->owner.get() != &state) [[unlikely]]
    return foreign_binding();
  ATTN_RETURN_IF_ERROR(state.session.set_stream(stream));
  for (std::size_t step = 0; step < state.plans.size(); ++step) {
    ATTN_RETURN_IF_ERROR(state.plans[step].execute(state.session, binding.state_->packs[step]));
  }
  return {};
}

Status Executable::execute(Binding& binding, void* stream, void* workspace) {
  if (binding.state_->owner != state_) return foreign_binding();
  if (binding.state_->workspace != workspace) {
    ATTN_RETURN_IF_ERROR(check_workspace(workspace, state_->workspace_bytes,
                                         state_->device.ordinal(), cuda::classify));
    ATTN_RETURN_IF_ERROR(binding.state_->make_packs(workspace));
  }
  return execute(binding, stream);
}

Status Binding::set_param(const std::string& name, double value) {
  for (const plan::ParamInfo& param : state_->owner->program.params) {
    if (param.name != name) continue;
    ATTN_RETURN_IF_ERROR(check_scalar(name, param.dtype, value));
    state_->scalars.set_param(name, param.dtype, value);
    return {};
  }
  return Status(ErrorCode::binding, fmt::format("the plan has no param '{}'", name));
}

}  // namespace attn::execute
