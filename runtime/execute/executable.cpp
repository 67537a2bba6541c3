#include "runtime/execute/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/cudnn/execution.h"
#include "runtime/execute/addresses.h"
#include "runtime/execute/checks.h"
#include "runtime/execute/index_check.h"
#include "runtime/execute/scalars.h"
#include "runtime/execute/steps.h"

namespace attn::execute {

// Members are destroyed last to first: plans before their handle, the handle before its context.
struct Executable::State {
  plan::Program program;
  cuda::Device device;
  cudnn::Session session;
  std::vector<LoadedStep> steps;
  std::int64_t cudnn_bytes = 0;    // of the workspace: the steps run one after another and share it
  plan::InternalPlaces internals;  // behind that
  std::int64_t workspace_bytes = 0;  // both
  cuda::DeviceBuffer counting;       // 0, 1, .. for counting operands
  cuda::DeviceBuffer once;           // internal tensors that are made once
  std::optional<IndexChecker> checker;
};

struct Binding::State {
  std::shared_ptr<Executable::State> owner;
  Arguments arguments;
  Scalars scalars;
  cuda::DeviceBuffer own_workspace;
  void* workspace = nullptr;
  std::vector<BoundStep> steps;  // one for each of the owner's

  Status bind_to(void* new_workspace);
};

Status Binding::State::bind_to(void* new_workspace) {
  Memory memory{arguments, scalars, owner->counting.data()};
  add_internals(memory, plan::internal_places(owner->program, true), owner->once.data());
  add_internals(memory, owner->internals,
                static_cast<std::byte*>(new_workspace) + owner->cudnn_bytes);
  ATTN_ASSIGN(steps, bind_steps(owner->program, memory, owner->session.library(), new_workspace));
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
  const std::size_t compiled = plan.compiled.size() + plan.kernels.size();
  if (plan.compiled.size() == plan::steps_of<plan::CudnnStep>(plan.program).size() &&
      plan.kernels.size() == plan::kernel_count(plan.program)) {
    return {};
  }
  return Status(ErrorCode::plan_damaged, fmt::format("the plan has {} steps but kernels for {}",
                                                     plan.program.steps.size(), compiled));
}

// The largest of the cuDNN steps'; aligned when internal tensors lie behind.
std::int64_t cudnn_bytes(const std::vector<LoadedStep>& steps, bool more_behind) {
  std::int64_t largest = 0;
  for (const LoadedStep& step : steps) {
    const auto* loaded = std::get_if<cudnn::LoadedPlan>(&step);
    if (loaded != nullptr) largest = std::max(largest, loaded->workspace_bytes());
  }
  if (!more_behind) return largest;
  return (largest + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

Result<std::optional<IndexChecker>> load_checker(const plan::Plan& plan, const cuda::Device& device,
                                                 bool wanted) {
  std::optional<IndexChecker> checker;
  if (!wanted || !plan.program.check) return checker;
  ATTN_ASSIGN(checker, IndexChecker::load(*plan.program.check, plan.kernels.back(), device));
  return checker;
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
  ATTN_ASSIGN(std::vector<LoadedStep> steps, load_steps(plan, session, device));
  ATTN_ASSIGN(cuda::DeviceBuffer counting, counting_numbers(plan.program, device));
  ATTN_ASSIGN(cuda::DeviceBuffer once, derive_once(plan, device));
  ATTN_ASSIGN(std::optional<IndexChecker> checker,
              load_checker(plan, device, options.check_values));
  plan::InternalPlaces internals = plan::internal_places(plan.program, false);
  const std::int64_t shared = cudnn_bytes(steps, internals.bytes > 0);
  const std::int64_t workspace_bytes = shared + internals.bytes;
  return Executable(
      std::make_shared<State>(State{plan.program, std::move(device), std::move(session),
                                    std::move(steps), shared, std::move(internals), workspace_bytes,
                                    std::move(counting), std::move(once), std::move(checker)}));
}

Result<Executable> Executable::load_file(const std::string& path, const LoadOptions& options) {
  ATTN_ASSIGN(const plan::Plan plan, plan::load(path, options.direction));
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
      Binding::State{state_, arguments, Scalars(state_->program, arguments), {}, nullptr, {}});
  if (state_->checker) {
    ATTN_RETURN_IF_ERROR(state_->checker->run({state->arguments, state->scalars}));
  }
  if (workspace != nullptr) {
    ATTN_RETURN_IF_ERROR(
        check_workspace(workspace, state_->workspace_bytes, device, cuda::classify));
  } else {
    ATTN_ASSIGN(state->own_workspace,
                cuda::DeviceBuffer::allocate(state_->device,
                                             static_cast<std::size_t>(state_->workspace_bytes)));
    workspace = state->own_workspace.data();
  }
  ATTN_RETURN_IF_ERROR(state->bind_to(workspace));
  return Binding(std::move(state));
}

Status Executable::execute(const Binding& binding, void* stream) {
  State& state = *state_;
  if (binding.state_->owner.get() != &state) [[unlikely]]
    return foreign_binding();
  ATTN_RETURN_IF_ERROR(state.session.set_stream(stream));
  for (std::size_t i = 0; i < state.steps.size(); ++i) {
    ATTN_RETURN_IF_ERROR(
        execute_step(state.steps[i], binding.state_->steps[i], state.session, stream));
  }
  return {};
}

Status Executable::execute(Binding& binding, void* stream, void* workspace) {
  if (binding.state_->owner != state_) return foreign_binding();
  if (binding.state_->workspace != workspace) {
    ATTN_RETURN_IF_ERROR(check_workspace(workspace, state_->workspace_bytes,
                                         state_->device.ordinal(), cuda::classify));
    ATTN_RETURN_IF_ERROR(binding.state_->bind_to(workspace));
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
