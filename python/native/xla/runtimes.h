// Handles of libattn, and the runtimes of the devices. Internal to python/native/xla.
#pragma once

#include <cstdint>
#include <memory>

#include "attn.h"

namespace attn::xla {

template <auto destroy>
struct Destroy {
  template <typename Handle>
  void operator()(Handle* handle) const {
    destroy(handle);
  }
};
using Plan = std::unique_ptr<attn_plan, Destroy<attn_plan_close>>;
using Executable = std::unique_ptr<attn_executable, Destroy<attn_executable_release>>;
using Binding = std::unique_ptr<attn_binding, Destroy<attn_binding_destroy>>;
using Arguments = std::unique_ptr<attn_arguments, Destroy<attn_arguments_destroy>>;
using ErrorDetails = std::unique_ptr<attn_error, Destroy<attn_error_destroy>>;
using Runtime = std::shared_ptr<attn_runtime>;

// Devices of a process are numbered below this.
constexpr std::int32_t kMostDevices = 64;

// The runtime of a device, which all programs of the process share while one of them has something
// loaded there. Null, with `error`, if it cannot be opened.
Runtime runtime_of(std::int32_t device, attn_status& status, attn_error* error);

}  // namespace attn::xla
