#include "runtime/cudnn/execution.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/cudnn/descriptor.h"
#include "runtime/cudnn/errors.h"

namespace attn::cudnn {

struct Session::State {
  std::shared_ptr<const Library> library;
  cudnnHandle_t handle = nullptr;
  void* stream = nullptr;

  ~State() {
    if (handle != nullptr) library->api().cudnnDestroy(handle);
  }
};

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

const Library& Session::library() const { return *state_->library; }
void* Session::handle() const { return state_->handle; }

Result<Session> Session::create(std::shared_ptr<const Library> library) {
  auto state = std::make_unique<State>();
  state->library = std::move(library);
  const Api& api = state->library->api();
  const cudnnStatus_t status = api.cudnnCreate(&state->handle);
  if (status != CUDNN_STATUS_SUCCESS) {
    state->handle = nullptr;
    return call_error(api, status, "create a handle");
  }
  return Session(std::move(state));
}

Status Session::set_stream(void* stream) {
  if (stream == state_->stream) return Status();
  const Api& api = state_->library->api();
  const cudnnStatus_t status =
      api.cudnnSetStream(state_->handle, static_cast<cudaStream_t>(stream));
  if (status != CUDNN_STATUS_SUCCESS) return call_error(api, status, "set the stream");
  state_->stream = stream;
  return Status();
}

struct VariantPack::State {
  Descriptor descriptor;
};

VariantPack::VariantPack(std::unique_ptr<State> state) : state_(std::move(state)) {}
VariantPack::VariantPack(VariantPack&&) noexcept = default;
VariantPack& VariantPack::operator=(VariantPack&&) noexcept = default;
VariantPack::~VariantPack() = default;

void* VariantPack::descriptor() const { return state_->descriptor.raw(); }

Result<VariantPack> VariantPack::create(const Library& library, std::span<const graph::Uid> uids,
                                        std::span<void* const> addresses, void* workspace) {
  if (uids.size() != addresses.size()) {
    return Result<VariantPack>(ErrorCode::internal, fmt::format("{} uids with {} addresses",
                                                                uids.size(), addresses.size()));
  }
  ATTN_ASSIGN(Descriptor descriptor, DescriptorBuilder(library.api(), kVariantPackDescriptor)
                                         .set_all(kVariantPackUniqueIds, uids)
                                         .set_all(kVariantPackDataPointers, addresses)
                                         .set(kVariantPackWorkspace, workspace)
                                         .finalize());
  return VariantPack(std::make_unique<State>(State{std::move(descriptor)}));
}

struct LoadedPlan::State {
  std::shared_ptr<const Library> library;
  decltype(Api::cudnnBackendExecute) execute;
  Descriptor plan;
  std::int64_t workspace_bytes;
};

LoadedPlan::LoadedPlan(std::unique_ptr<State> state) : state_(std::move(state)) {}
LoadedPlan::LoadedPlan(LoadedPlan&&) noexcept = default;
LoadedPlan& LoadedPlan::operator=(LoadedPlan&&) noexcept = default;
LoadedPlan::~LoadedPlan() = default;

Result<LoadedPlan> LoadedPlan::load(const Session& session, std::string_view cudnn_plan) {
  const std::shared_ptr<const Library>& library = session.state_->library;
  const Api& api = library->api();
  // cuDNN reads a C string, so the terminating NUL is included.
  const std::string text(cudnn_plan);
  const std::span<const char> with_zero(text.c_str(), text.size() + 1);
  ATTN_ASSIGN(Descriptor plan, DescriptorBuilder(api, kExecutionPlanDescriptor)
                                   .set(kPlanHandle, session.state_->handle)
                                   .set_all(kPlanJson, with_zero)
                                   .finalize());
  ATTN_ASSIGN(const std::int64_t workspace_bytes, plan.get(kPlanWorkspaceSize));
  return LoadedPlan(std::make_unique<State>(
      State{library, api.cudnnBackendExecute, std::move(plan), workspace_bytes}));
}

std::int64_t LoadedPlan::workspace_bytes() const { return state_->workspace_bytes; }

Status LoadedPlan::execute(const Session& session, const VariantPack& pack) const {
  const cudnnStatus_t status =
      state_->execute(static_cast<cudnnHandle_t>(session.handle()), state_->plan.raw(),
                      static_cast<cudnnBackendDescriptor_t>(pack.descriptor()));
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return Status();
  return call_error(state_->library->api(), status, "execute");
}

}  // namespace attn::cudnn
