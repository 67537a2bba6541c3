#include "runtime/execute/binding.h"

#include <fmt/format.h>

#include "runtime/execute/binding_state.h"
#include "runtime/execute/checks.h"

namespace attn::execute {

Binding::Binding(std::unique_ptr<State> state) : state_(std::move(state)) {}
Binding::Binding(Binding&&) noexcept = default;
Binding& Binding::operator=(Binding&&) noexcept = default;
Binding::~Binding() = default;

Binding::State::State(std::shared_ptr<const ExecutableState> executable,
                      cudnn::Handles::Seat its_seat, const Arguments& arguments)
    : owner(std::move(executable)),
      seat(std::move(its_seat)),
      scalars(owner->program, arguments),
      tensors(addresses_of(owner->program, arguments)),
      operands(operands_of(owner->program, memory())) {}

Memory Binding::State::memory() {
  Memory memory(owner->program, scalars, owner->counting.data());
  memory.add_internals(owner->made_once, owner->once.data());
  memory.add_internals(owner->internals, owner->cudnn_bytes);
  return memory;
}

Status Binding::State::give_workspace(const Workspace& wanted) {
  const cuda::Device& device = owner->runtime->device();
  workspace_kind = wanted.kind();
  workspace = wanted.address();
  if (wanted.kind() == Workspace::Kind::given) {
    return check_workspace(workspace, owner->workspace_bytes, device.ordinal(), cuda::classify);
  }
  if (wanted.kind() == Workspace::Kind::owned) {
    ATTN_ASSIGN(own_workspace, cuda::DeviceBuffer::allocate(
                                   device, static_cast<std::size_t>(owner->workspace_bytes)));
    workspace = own_workspace.data();
  }
  return {};
}

Status Binding::State::select(const Bases& bases) {
  Pack* found = packs.find(bases);
  if (found == nullptr) {
    ATTN_ASSIGN(auto steps, bind_steps(operands, bases, owner->runtime->library()));
    found = &packs.slot();
    found->tensors.assign(bases.tensors.begin(), bases.tensors.end());
    found->workspace = bases.workspace;
    found->steps = std::move(steps);
    found->checked = false;
  }
  current = found;
  return {};
}

Status Binding::State::select_unless_pooled(std::span<void* const> addresses) {
  return is_pooled() ? Status() : select({addresses, workspace});
}

bool Binding::State::is_pooled() const {
  return workspace_kind == Workspace::Kind::stream_ordered && owner->workspace_bytes > 0;
}

Status Binding::State::run(void* stream) {
  const cudnn::Handles::Lease handle = seat.lease();
  ATTN_RETURN_IF_ERROR(handle.session().set_stream(stream));
  for (std::size_t i = 0; i < owner->steps.size(); ++i) {
    ATTN_RETURN_IF_ERROR(
        execute_step(owner->steps[i], current->steps[i], handle.session(), stream));
  }
  return {};
}

Status Binding::State::run_in_pool(void* stream) {
  const cuda::Device& device = owner->runtime->device();
  const auto bytes = static_cast<std::size_t>(owner->workspace_bytes);
  ATTN_ASSIGN(const auto buffer, cuda::StreamBuffer::allocate(device, stream, bytes));
  ATTN_RETURN_IF_ERROR(select({tensors, buffer.data()}));
  return run(stream);
}

Status Binding::execute(void* stream) {
  State& state = *state_;
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(state.owner->runtime->device()));
  return state.is_pooled() ? state.run_in_pool(stream) : state.run(stream);
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
  const Bases bases{addresses, state.workspace};
  const Pack* known = state.packs.find(bases);
  if (check == Check::yes && (known == nullptr || !known->checked)) {
    const cuda::Device& device = state.owner->runtime->device();
    cuda::Scope scope;
    ATTN_RETURN_IF_ERROR(scope.enter(device));
    ATTN_RETURN_IF_ERROR(
        check_addresses(state.owner->program, addresses, device.ordinal(), cuda::classify));
  }
  ATTN_RETURN_IF_ERROR(state.select_unless_pooled(addresses));
  if (state.current != nullptr && check == Check::yes) state.current->checked = true;
  state.tensors.assign(addresses.begin(), addresses.end());
  return {};
}

Status Binding::set_workspace(void* address) {
  State& state = *state_;
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(state.owner->runtime->device()));
  ATTN_RETURN_IF_ERROR(check_workspace(address, state.owner->workspace_bytes,
                                       state.owner->runtime->device().ordinal(), cuda::classify));
  ATTN_RETURN_IF_ERROR(state.select({state.tensors, address}));
  state.workspace_kind = Workspace::Kind::given;
  state.workspace = address;
  state.own_workspace = {};
  return {};
}

}  // namespace attn::execute
