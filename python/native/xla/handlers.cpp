#include "attn_xla.h"
#include "base64.h"
#include "frame.h"
#include "guarded.h"
#include "state.h"

namespace attn::xla {
namespace {

ffi::Error* instantiate(const ffi::Call& call) {
  const auto plan = text_of(call, "plan");
  const auto index = integer_of(call, "index");
  const auto params = reals_of(call, "params");
  if (!plan || !index || !params) {
    return failure(call, ATTN_STATUS_INVALID_ARGUMENT,
                   std::string("a call has the attributes plan (text), index (s64) and params "
                               "(f64 array)"));
  }
  const auto file = from_base64(*plan);
  if (!file) {
    return failure(call, ATTN_STATUS_PLAN_DAMAGED,
                   std::string("the attribute `plan` is not text in base64"));
  }
  attn_status status = ATTN_STATUS_OK;
  std::string text;
  std::unique_ptr<State> state = State::make(*file, *index, *params, status, text);
  return state == nullptr ? failure(call, status, text) : keep(call, std::move(state));
}

// What a call runs with: where it is loaded, and its stream.
struct Place {
  Loaded* loaded = nullptr;
  void* stream = nullptr;
};

ffi::Error* find(const ffi::Call& call, attn_error* details, Place& place) {
  ffi::Error* error = nullptr;
  State* const state = state_of(call, error);
  if (state == nullptr) return error;
  ffi::GetStream stream{sizeof stream, nullptr, call.context, nullptr};
  error = call.api->get_stream(&stream);
  if (error != nullptr) return error;
  ffi::GetDevice device{sizeof device, nullptr, call.context, 0};
  error = call.api->get_device(&device);
  if (error != nullptr) return error;
  attn_status status = ATTN_STATUS_OK;
  if (device.ordinal < 0 || device.ordinal >= kMostDevices) {
    return failure(call, ATTN_STATUS_INVALID_ARGUMENT,
                   "there is no device " + std::to_string(device.ordinal));
  }
  place = {state->on(device.ordinal, status, details), stream.stream};
  return place.loaded == nullptr ? failure(call, status, details) : nullptr;
}

using Step = attn_status (Loaded::*)(const ffi::Call&, void*, attn_error*, std::string&);

ffi::Error* on_device(const ffi::Call& call, Step step) {
  thread_local const ErrorDetails details(attn_error_create());
  Place place;
  ffi::Error* const error = find(call, details.get(), place);
  if (error != nullptr) return error;
  std::string text;
  const attn_status status = (place.loaded->*step)(call, place.stream, details.get(), text);
  if (status == ATTN_STATUS_OK) return nullptr;
  return text.empty() ? failure(call, status, details.get()) : failure(call, status, text);
}

}  // namespace
}  // namespace attn::xla

using namespace attn::xla;

void* attn_xla_instantiate(void* call) { return guarded(call, instantiate); }

void* attn_xla_initialize(void* call) {
  return guarded(call, [](const ffi::Call& read) { return on_device(read, &Loaded::prepare); });
}

void* attn_xla_execute(void* call) {
  return guarded(call, [](const ffi::Call& read) { return on_device(read, &Loaded::run); });
}
