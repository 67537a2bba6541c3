#include "state.h"

#include <utility>

#include "frame.h"

namespace attn::xla {
namespace {

// The type of states in one XLA: a process has one for each plugin.
struct Known {
  std::atomic<const ffi::Api*> api;
  ffi::TypeId type;
};
constexpr std::size_t kMostKnown = 16;
std::array<Known, kMostKnown> all_known;
std::mutex registering;

void destroy(void* state) { delete static_cast<State*>(state); }

ffi::TypeId* known_type(const ffi::Api* api) {
  for (Known& known : all_known) {
    if (known.api.load(std::memory_order_acquire) == api) return &known.type;
  }
  return nullptr;
}

// The type, registered now if it was not; null, with XLA's error.
ffi::TypeId* registered_type(const ffi::Call& call, ffi::Error*& error) {
  if (ffi::TypeId* const found = known_type(call.api)) return found;
  const std::lock_guard lock(registering);
  for (Known& known : all_known) {
    const ffi::Api* const api = known.api.load(std::memory_order_acquire);
    if (api == call.api) return &known.type;
    if (api != nullptr) continue;
    static constexpr std::string_view kName = "attn_xla_state";
    static constexpr ffi::TypeInfo kInfo{sizeof kInfo, nullptr, destroy};
    ffi::RegisterType arguments{
        sizeof arguments, nullptr, {kName.data(), kName.size()}, &known.type, &kInfo};
    error = call.api->register_type(&arguments);
    if (error != nullptr) return nullptr;
    known.api.store(call.api, std::memory_order_release);
    return &known.type;
  }
  error = failure(call, ATTN_STATUS_INTERNAL, std::string("more than 16 XLAs in one process"));
  return nullptr;
}

// Calls one of XLA's two functions of states, whose arguments have a stage since FFI 0.3.
ffi::Error* exchange(const ffi::Call& call, ffi::Error* (*function)(void*), ffi::TypeId* type,
                     void*& state) {
  if (call.api->version.minor >= ffi::kMinorOfStages) {
    ffi::StateOfStage arguments{sizeof arguments,  nullptr, call.context,
                                ffi::kInstantiate, type,    state};
    ffi::Error* const error = function(&arguments);
    state = arguments.state;
    return error;
  }
  ffi::StateWithoutStage arguments{sizeof arguments, nullptr, call.context, type, state, destroy};
  ffi::Error* const error = function(&arguments);
  state = arguments.state;
  return error;
}

}  // namespace

std::unique_ptr<State> State::make(std::string_view file, std::int64_t index,
                                   std::span<const double> params, attn_status& status,
                                   std::string& text) {
  const ErrorDetails error(attn_error_create());
  attn_plan* plan = nullptr;
  status = attn_plan_open_memory(file.data(), file.size(), nullptr, &plan, error.get());
  if (status != ATTN_STATUS_OK) {
    text = attn_error_text(error.get());
    return nullptr;
  }
  auto made = std::make_unique<State>();
  made->plan_.reset(plan);
  if (index < 0 || static_cast<std::size_t>(index) >= attn_plan_count(plan)) {
    status = ATTN_STATUS_INVALID_ARGUMENT;
    text = "the attribute `index` is " + std::to_string(index) + ", and the file has " +
           std::to_string(attn_plan_count(plan)) + " plans";
    return nullptr;
  }
  made->index_ = static_cast<std::size_t>(index);
  made->params_.assign(params.begin(), params.end());
  return made;
}

State::~State() {
  for (std::atomic<Loaded*>& loaded : loaded_) delete loaded.load();
}

Loaded* State::on(std::int32_t device, attn_status& status, attn_error* error) {
  std::atomic<Loaded*>& place = loaded_[static_cast<std::size_t>(device)];
  if (Loaded* const found = place.load(std::memory_order_acquire)) return found;
  const std::lock_guard lock(loading_);
  if (Loaded* const found = place.load(std::memory_order_acquire)) return found;
  std::unique_ptr<Loaded> made = Loaded::make(plan_.get(), index_, params_, device, status, error);
  if (made == nullptr) return nullptr;
  place.store(made.get(), std::memory_order_release);
  return made.release();
}

ffi::Error* keep(const ffi::Call& call, std::unique_ptr<State> state) {
  ffi::Error* error = nullptr;
  ffi::TypeId* const type = registered_type(call, error);
  if (type == nullptr) return error;
  void* given = state.get();
  error = exchange(call, call.api->set_state, type, given);
  if (error == nullptr) static_cast<void>(state.release());
  return error;
}

State* state_of(const ffi::Call& call, ffi::Error*& error) {
  ffi::TypeId* const type = registered_type(call, error);
  if (type == nullptr) return nullptr;
  void* state = nullptr;
  error = exchange(call, call.api->get_state, type, state);
  return error == nullptr ? static_cast<State*>(state) : nullptr;
}

}  // namespace attn::xla
