#include "runtime/execute/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/cuda/failure.h"
#include "runtime/execute/binding_state.h"
#include "runtime/execute/checks.h"

namespace attn::execute {

Binding::Binding(std::unique_ptr<State> state) : state_(std::move(state)) {}
Binding::Binding(Binding&&) noexcept = default;
Binding& Binding::operator=(Binding&&) noexcept = default;
Binding::~Binding() = default;

Binding::State::State(std::shared_ptr<const ExecutableState> executable,
                      std::optional<cudnn::Handles::Seat> its_seat, const Arguments& arguments,
                      RowCopies its_copies, std::size_t kept_addresses)
    : owner(std::move(executable)),
      seat(std::move(its_seat)),
      scalars(owner->program, arguments),
      copies(std::move(its_copies)),
      bound(bound_tensors(owner->program, arguments)),
      leading(leading_of(owner->program, arguments)),
      tensors(addresses_of(owner->program, arguments)),
      checked(tensors),
      operands(operands_of(owner->program, memory())),
      kept(kept_addresses),
      kernels(arguments_of(operands, kept)),
      packs(kept_addresses) {}

Memory Binding::State::memory() {
  Memory memory(owner->program, scalars, owner->iota.data());
  memory.add_internals(owner->made_once, owner->once.data());
  memory.add_internals(owner->internals, owner->cudnn_bytes);
  const plan::KernelStep* scheduled = plan::scheduled_step(owner->program);
  if (scheduled != nullptr) memory.set_schedule(*scheduled->schedule);
  memory.set_bound(bound);
  copies.place(memory);
  return memory;
}

Result<cuda::DeviceBuffer> Binding::State::allocate_workspace() const {
  return cuda::DeviceBuffer::allocate(owner->runtime->device(),
                                      static_cast<std::size_t>(workspace_bytes()),
                                      owner->runtime->allocator());
}

Status Binding::State::give_workspace(const Workspace& wanted) {
  const cuda::Device& device = owner->runtime->device();
  workspace_kind = wanted.kind();
  workspace = wanted.address();
  if (wanted.kind() == Workspace::Kind::given) {
    return check_workspace(workspace, owner->workspace_bytes, device.ordinal(), cuda::classify);
  }
  if (wanted.kind() == Workspace::Kind::owned) {
    ATTN_ASSIGN(cuda::DeviceBuffer buffer, allocate_workspace());
    own(std::move(buffer));
  }
  return {};
}

void Binding::State::own(cuda::DeviceBuffer buffer) {
  if (has_run && own_workspace.data() != nullptr) outgrown = std::move(own_workspace);
  workspace_kind = Workspace::Kind::owned;
  own_workspace = std::move(buffer);
  workspace = own_workspace.data();
}

Status Binding::State::own_one_for_graphs() {
  if (own_workspace.size() >= static_cast<std::size_t>(workspace_bytes())) return {};
  ATTN_ASSIGN(cuda::DeviceBuffer buffer, allocate_workspace());
  if (own_workspace.data() != nullptr) outgrown = std::move(own_workspace);
  own_workspace = std::move(buffer);
  return {};
}

bool Binding::State::is_checked(const Bases& bases) {
  const Pack* known = packs.find(bases);
  return known != nullptr && known->checked;
}

void Binding::State::note_checked(const Bases& bases) {
  checked.assign(bases.tensors.begin(), bases.tensors.end());
  if (is_pooled()) return;  // nothing is kept for these bases
  Pack* known = packs.find(bases);
  if (known == nullptr) known = &packs.add(bases);
  known->checked = true;
}

bool Binding::State::is_selected(const Bases& bases) const {
  return selected.is_any && selected.workspace == bases.workspace &&
         selected.schedule == bases.schedule && std::ranges::equal(selected.tensors, bases.tensors);
}

Status Binding::State::select_pack(const Bases& bases) {
  Pack* found = packs.find(bases);
  if (found == nullptr || found->of_cudnn.empty()) {
    ATTN_ASSIGN(auto made, packs_of(operands, bases, *owner->cudnn->library));
    if (found == nullptr) found = &packs.add(bases);
    found->of_cudnn = std::move(made);
  }
  current = found;
  return {};
}

Status Binding::State::select(const Bases& bases) {
  if (is_selected(bases)) return {};
  ATTN_RETURN_IF_ERROR(prepare(kernels, operands, bases, owner->runtime->device()));
  if (owner->cudnn != nullptr) ATTN_RETURN_IF_ERROR(select_pack(bases));
  take(kernels, operands, bases);
  selected.tensors.assign(bases.tensors.begin(), bases.tensors.end());
  selected.workspace = bases.workspace;
  selected.schedule = bases.schedule;
  selected.is_any = true;
  return {};
}

Status Binding::State::select_unless_pooled(std::span<void* const> addresses) {
  return is_pooled() ? Status() : select(bases(addresses, workspace));
}

std::int64_t Binding::State::workspace_bytes() const {
  return schedule == nullptr ? owner->workspace_bytes : owner->scheduled_bytes;
}

bool Binding::State::is_pooled() const {
  return workspace_kind == Workspace::Kind::stream_ordered && workspace_bytes() > 0;
}

Bases Binding::State::bases(std::span<void* const> addresses, void* its_workspace) const {
  return {addresses, its_workspace, schedule == nullptr ? ScheduleMemory() : schedule->for_using()};
}

Status Binding::State::use(std::shared_ptr<const ScheduleState> other) {
  std::shared_ptr<const ScheduleState> before = std::exchange(schedule, std::move(other));
  Status fitted = fit_workspace();
  if (!fitted.ok()) schedule = std::move(before);
  return fitted;
}

Status Binding::State::fit_workspace() {
  const auto bytes = static_cast<std::size_t>(workspace_bytes());
  const bool fits = own_workspace.size() == bytes || (has_run && own_workspace.size() > bytes);
  if (workspace_kind != Workspace::Kind::owned || fits) return select_unless_pooled(tensors);
  ATTN_ASSIGN(cuda::DeviceBuffer buffer, allocate_workspace());
  ATTN_RETURN_IF_ERROR(select(bases(tensors, buffer.data())));
  own(std::move(buffer));
  return {};
}

Status Binding::State::make_schedule(const ScheduleMemory& there, void* stream) {
  const cuda::Device& device = owner->runtime->device();
  const std::size_t run = *owner->scheduled;
  const LoadedLaunch& maker = std::get<LoadedKernels>(owner->steps[owner->order[run]])[0];
  const LaunchOperands& its = std::get<KernelOperands>(operands[run]).launches[0];
  if (!making) making.emplace(its);
  const Bases bases{tensors, nullptr, there};
  ATTN_RETURN_IF_ERROR(making->prepare(its, bases, device));
  making->take(its, bases);
  ATTN_RETURN_IF_ERROR(copies.enqueue(device, tensors, stream));
  return maker.kernel.launch(stream, maker.shape, making->data());
}

Status Binding::State::run(void* stream) {
  if (schedule != nullptr && schedule->built == 0) {
    return Status(ErrorCode::binding, "the schedule of the binding was not built yet");
  }
  has_run = true;
  if (!seat) return run_with(nullptr, stream);
  const cudnn::Handles::Lease handle = seat->lease();
  ATTN_RETURN_IF_ERROR(handle.session().set_stream(stream));
  return run_with(&handle.session(), stream);
}

Status Binding::State::run_with(const cudnn::Session* session, void* stream) {
  const cuda::Device& device = owner->runtime->device();
  ATTN_RETURN_IF_ERROR(copies.enqueue(device, selected.tensors, stream));
  std::size_t kernel = 0, pack = 0;
  for (std::size_t i = 0; i < owner->order.size(); ++i) {
    const LoadedStep& step = owner->steps[owner->order[i]];
    if (const auto* plan = std::get_if<cudnn::LoadedPlan>(&step)) {
      ATTN_RETURN_IF_ERROR(plan->execute(*session, current->of_cudnn[pack++]));
    } else {
      ATTN_RETURN_IF_ERROR(launch(std::get<LoadedKernels>(step),
                                  std::get<KernelOperands>(operands[i]), kernels[kernel++], device,
                                  stream));
    }
  }
  return {};
}

Status Binding::State::run_in_pool(void* stream) {
  const cuda::Device& device = owner->runtime->device();
  const auto bytes = static_cast<std::size_t>(workspace_bytes());
  ATTN_ASSIGN(const auto buffer, cuda::StreamBuffer::allocate(device, stream, bytes,
                                                              owner->runtime->allocator().get()));
  ATTN_RETURN_IF_ERROR(select(bases(tensors, buffer.data())));
  return run(stream);
}

// cuDNN does not report the driver's error. After a fault, every driver call does.
Error Binding::State::explained(Error error) const {
  if (error.code != ErrorCode::cudnn) return error;
  const auto asked = owner->runtime->device().free_bytes();
  if (asked.ok()) return error;
  const auto failure = cuda::failure_of(asked.error());
  if (!failure || failure->kind != cuda::FailureKind::fault) return error;
  Error fault = asked.error();
  fault.message = "a device fault makes every later call fail: " + fault.message;
  fault.notes.push_back("cuDNN reported: " + error.message);
  fault.notes.insert(fault.notes.end(), error.notes.begin(), error.notes.end());
  return fault;
}

Status Binding::execute(void* stream) {
  State& state = *state_;
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(state.owner->runtime->device()));
  Status status = state.is_pooled() ? state.run_in_pool(stream) : state.run(stream);
  if (!status.ok()) [[unlikely]] {
    return state.explained(status.error());
  }
  return status;
}

// A child graph cannot allocate, so a binding with a stream-ordered workspace allocates its own one
// for graphs.
Result<void*> Binding::graph() {
  State& state = *state_;
  const cuda::Device& device = state.owner->runtime->device();
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device));
  if (state.is_pooled()) {
    ATTN_RETURN_IF_ERROR(state.own_one_for_graphs());
    ATTN_RETURN_IF_ERROR(state.select(state.bases(state.tensors, state.own_workspace.data())));
  }
  ATTN_ASSIGN(const cuda::Stream stream, cuda::Stream::create(device));
  ATTN_ASSIGN(state.recorded, cuda::Recording::make(stream, [&state](void* recorded) {
                return state.run(recorded);
              }));
  return state.recorded->handle();
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

Status Binding::set_addresses(std::span<void* const> addresses, Check check) {
  State& state = *state_;
  const std::vector<plan::TensorInfo>& tensors = state.owner->program.tensors;
  if (addresses.size() != tensors.size()) {
    return Status(ErrorCode::binding, fmt::format("{} addresses for the plan's {} tensors",
                                                  addresses.size(), tensors.size()));
  }
  const Bases bases = state.bases(addresses, state.workspace);
  if (check == Check::yes && !state.is_checked(bases)) {
    const cuda::Device& device = state.owner->runtime->device();
    cuda::Scope scope;
    ATTN_RETURN_IF_ERROR(scope.enter(device));
    ATTN_RETURN_IF_ERROR(check_addresses(state.owner->program, addresses, device.ordinal(),
                                         cuda::classify, state.checked));
  }
  ATTN_RETURN_IF_ERROR(state.select_unless_pooled(addresses));
  state.tensors.assign(addresses.begin(), addresses.end());
  if (check == Check::yes) state.note_checked(bases);
  return {};
}

Status Binding::set_workspace(void* address) {
  State& state = *state_;
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(state.owner->runtime->device()));
  ATTN_RETURN_IF_ERROR(check_workspace(address, state.owner->workspace_bytes,
                                       state.owner->runtime->device().ordinal(), cuda::classify));
  ATTN_RETURN_IF_ERROR(state.select(state.bases(state.tensors, address)));
  state.workspace_kind = Workspace::Kind::given;
  state.workspace = address;
  if (!state.recorded) state.own_workspace = {};  // the last graph() uses it
  return {};
}

Status Binding::use_schedule(const Schedule* schedule) {
  State& state = *state_;
  if (schedule != nullptr) {
    ATTN_RETURN_IF_ERROR(check_same_schedule(*schedule->state_->owner, *state.owner));
  }
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(state.owner->runtime->device()));
  return state.use(schedule == nullptr ? nullptr : schedule->state_);
}

}  // namespace attn::execute
