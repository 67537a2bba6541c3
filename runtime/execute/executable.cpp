#include "runtime/execute/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/cuda/capture.h"
#include "runtime/cuda/stream.h"
#include "runtime/execute/binding_state.h"
#include "runtime/execute/checks.h"
#include "runtime/execute/executable_state.h"
#include "runtime/graph/listing.h"
#include "runtime/plan/storage.h"

namespace attn::execute {

// cuDNN's plans must be destroyed with their context current.
ExecutableState::~ExecutableState() {
  cuda::Scope scope;
  if (runtime == nullptr || !scope.enter(runtime->device()).ok()) return;
  steps.clear();
}

Executable::Executable(std::shared_ptr<const ExecutableState> state) : state_(std::move(state)) {}

namespace {

Status check_plan(const plan::Plan& plan) {
  if (Status status = plan::validate(plan.program); !status.ok()) {
    Error error = status.error();
    error.code = ErrorCode::plan_damaged;
    return error;
  }
  const std::size_t compiled = plan.compiled.size() + plan.kernels.size();
  if (plan.compiled.size() == plan::steps_of<plan::CudnnStep>(plan.program).size() &&
      plan.kernels.size() == plan::sources_of(plan.program).size()) {
    return {};
  }
  return Status(ErrorCode::plan_damaged, fmt::format("the plan has {} steps but kernels for {}",
                                                     plan.program.steps.size(), compiled));
}

// The largest cuDNN step's workspace; aligned if internal tensors follow.
Result<std::int64_t> cudnn_bytes(const std::vector<LoadedStep>& steps, bool more_behind) {
  constexpr std::int64_t kMost = std::int64_t{1} << 60;  // plan text is untrusted
  std::int64_t largest = 0;
  for (const LoadedStep& step : steps) {
    const auto* loaded = std::get_if<cudnn::LoadedPlan>(&step);
    if (loaded == nullptr) continue;
    const std::int64_t bytes = loaded->workspace_bytes();
    if (bytes < 0 || bytes > kMost) {
      return Error{
          ErrorCode::plan_damaged,
          fmt::format("a cuDNN plan needs a workspace of {} bytes, which is not valid", bytes)};
    }
    largest = std::max(largest, bytes);
  }
  if (!more_behind) return largest;
  return (largest + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

Result<std::optional<IndexChecker>> load_checker(const plan::Plan& plan, const Runtime& runtime,
                                                 bool wanted) {
  std::optional<IndexChecker> checker;
  if (!wanted || !plan.program.check) return checker;
  ATTN_ASSIGN(checker, IndexChecker::load(*plan.program.check, plan.kernels.back(),
                                          runtime.device(), runtime.allocator()));
  return checker;
}

void log_load(const Runtime& runtime, const plan::Plan& plan, std::int64_t workspace_bytes) {
  runtime.log(
      log::Level::info,
      fmt::format("loaded the {} plan of `{}` ({}): {} steps, {} bytes of workspace",
                  to_string(plan::direction_of(plan.program)), escaped(plan.spec_name),
                  plan.signature.hash.to_hex(), plan.program.steps.size(), workspace_bytes));
}

std::size_t plan_bytes(const plan::Plan& plan) {
  std::size_t bytes = 0;
  for (const plan::CompiledStep& step : plan.compiled) bytes += step.cudnn_plan.size();
  for (const std::string& kernel : plan.kernels) bytes += kernel.size();
  return bytes;
}

// Loads cuDNN only for a plan that has steps of its.
Result<std::vector<LoadedStep>> load_with_cudnn(ExecutableState& state, const plan::Plan& plan) {
  const cuda::Device& device = state.runtime->device();
  if (plan.compiled.empty()) return load_steps(plan, nullptr, device);
  ATTN_ASSIGN(state.cudnn, state.runtime->cudnn());
  ATTN_ASSIGN(cudnn::Handles::Seat seat, state.cudnn->loading.take_seat());
  ATTN_RETURN_IF_ERROR(state.cudnn->executing.reserve(1));  // bind may not be able to
  return load_steps(plan, &seat.lease().session(), device);
}

// `plan` must have been checked.
Result<std::shared_ptr<const ExecutableState>> load_state(const std::shared_ptr<Runtime>& runtime,
                                                          const plan::Plan& plan,
                                                          const LoadOptions& options) {
  ATTN_RETURN_IF_ERROR(Executable::check_fits(*runtime, plan));
  const cuda::Device& device = runtime->device();
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device));
  const cuda::RelaxedCapture relaxed(device);
  auto state = std::make_shared<ExecutableState>();
  state->runtime = runtime;
  state->program = plan.program;
  state->signature = plan.signature;
  ATTN_ASSIGN(state->steps, load_with_cudnn(*state, plan));
  state->order = order_of(plan.program);
  ATTN_ASSIGN(state->iota, make_iota(plan.program, device, runtime->allocator()));
  ATTN_ASSIGN(state->once, derive_once(plan, device, runtime->allocator()));
  ATTN_ASSIGN(state->checker, load_checker(plan, *runtime, options.check_values));
  state->internals = plan::internal_places(plan.program, false);
  state->made_once = plan::internal_places(plan.program, true);
  ATTN_ASSIGN(state->cudnn_bytes, cudnn_bytes(state->steps, state->internals.bytes > 0));
  state->workspace_bytes = state->cudnn_bytes + state->internals.bytes;
  state->scheduled_bytes = state->cudnn_bytes + state->internals.bytes_without_schedule;
  state->rows = plan.shape.sizes[plan::Dim::Sq];
  state->keys = plan.shape.sizes[plan::Dim::Skv];
  state->scheduled = scheduled_run(plan.program);
  state->plan_bytes = plan_bytes(plan);
  log_load(*runtime, plan, state->workspace_bytes);
  return std::shared_ptr<const ExecutableState>(std::move(state));
}

Result<std::optional<cudnn::Handles::Seat>> take_seat(const ExecutableState& state,
                                                      bool is_captured) {
  using Growth = cudnn::Handles::Growth;
  std::optional<cudnn::Handles::Seat> seat;
  if (state.cudnn == nullptr) return seat;
  ATTN_ASSIGN(cudnn::Handles::Seat taken,
              state.cudnn->executing.take_seat(is_captured ? Growth::none : Growth::with_seats));
  seat.emplace(std::move(taken));
  return seat;
}

}  // namespace

namespace {

RuntimeOptions opened_by(const LoadOptions& options) {
  RuntimeOptions opened;
  opened.device = options.device;
  opened.cudnn_folder = options.cudnn_folder;
  return opened;
}

}  // namespace

Status Executable::check_fits(Runtime& runtime, const plan::Plan& plan) {
  const cuda::Device& device = runtime.device();
  ATTN_RETURN_IF_ERROR(check_device(plan, device.name(), device.sm()));
  if (plan::steps_of<plan::CudnnStep>(plan.program).empty()) return {};
  ATTN_ASSIGN(const Runtime::Cudnn* cudnn, runtime.cudnn());
  ATTN_RETURN_IF_ERROR(check_version(plan, cudnn->library->version()));
  return check_engines(plan);
}

Result<Executable> Executable::load(std::shared_ptr<Runtime> runtime, const plan::Plan& plan,
                                    const LoadOptions& options) {
  ATTN_RETURN_IF_ERROR(check_plan(plan));
  ATTN_ASSIGN(auto state, load_state(runtime, plan, options));
  return Executable(std::move(state));
}

Result<Executable> Executable::load(const plan::Plan& plan, const LoadOptions& options) {
  ATTN_RETURN_IF_ERROR(check_plan(plan));
  ATTN_ASSIGN(auto runtime, Runtime::open(opened_by(options)));
  ATTN_ASSIGN(auto state, load_state(runtime, plan, options));
  return Executable(std::move(state));
}

Result<Executable> Executable::load_file(const std::string& path, const LoadOptions& options) {
  ATTN_ASSIGN(plan::Bundle bundle, plan::load_bundle(path));
  ATTN_ASSIGN(auto runtime, Runtime::open(opened_by(options)));
  const Result<plan::Plan> plan =
      plan::plan_of(std::move(bundle), options.direction, runtime->device().sm());
  if (!plan.ok()) return plan::at(path, plan.error());
  return load(std::move(runtime), *plan, options);
}

const plan::Program& Executable::program() const { return state_->program; }
const plan::Signature& Executable::signature() const { return state_->signature; }
const Runtime& Executable::runtime() const { return *state_->runtime; }
const cuda::Device& Executable::device() const { return state_->runtime->device(); }
std::int64_t Executable::workspace_bytes() const { return state_->workspace_bytes; }
std::int64_t Executable::device_bytes() const {
  return static_cast<std::int64_t>(state_->device_bytes());
}

Result<Binding> Executable::bind(const Arguments& arguments, Workspace workspace,
                                 std::size_t kept_addresses, void* stream,
                                 const Schedule* schedule) const {
  if (kept_addresses < 1 || kept_addresses > kMostKeptAddresses) {
    return {ErrorCode::invalid_argument, fmt::format("kept_addresses must be 1 to {}, not {}",
                                                     kMostKeptAddresses, kept_addresses)};
  }
  if (schedule != nullptr) {
    ATTN_RETURN_IF_ERROR(check_same_schedule(*schedule->state_->owner, *state_));
  }
  const cuda::Device& device = this->device();
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device));
  ATTN_RETURN_IF_ERROR(
      check_arguments(state_->program, arguments, device.ordinal(), cuda::classify));
  ATTN_ASSIGN(const bool is_captured, cuda::is_capturing(device, stream));
  const cuda::RelaxedCapture relaxed(device);
  ATTN_ASSIGN(std::optional<cudnn::Handles::Seat> seat, take_seat(*state_, is_captured));
  ATTN_ASSIGN(RowCopies copies,
              RowCopies::make(state_->program, arguments, device, state_->runtime->allocator()));
  auto state = std::make_unique<Binding::State>(state_, std::move(seat), arguments,
                                                std::move(copies), kept_addresses);
  if (schedule != nullptr) state->schedule = schedule->state_;
  if (state_->checker) {
    ATTN_RETURN_IF_ERROR(is_captured
                             ? state_->checker->check_ran()
                             : state_->checker->run(state->memory(), {state->tensors}, stream));
  }
  ATTN_RETURN_IF_ERROR(state->give_workspace(workspace));
  ATTN_RETURN_IF_ERROR(state->select_unless_pooled(state->tensors));
  return Binding(std::move(state));
}

}  // namespace attn::execute
