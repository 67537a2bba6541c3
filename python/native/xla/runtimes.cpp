#include "runtimes.h"

#include <array>
#include <mutex>

namespace attn::xla {

Runtime runtime_of(std::int32_t device, attn_status& status, attn_error* error) {
  static std::mutex opening;
  static std::array<std::weak_ptr<attn_runtime>, kMostDevices> opened;
  const std::lock_guard lock(opening);
  std::weak_ptr<attn_runtime>& known = opened[static_cast<std::size_t>(device)];
  if (Runtime found = known.lock()) return found;
  attn_runtime_options options = {};
  options.size = sizeof options;
  options.device = device;
  options.skip_value_checks = 1;  // the values are written after everything is bound
  attn_runtime* runtime = nullptr;
  status = attn_runtime_open(&options, &runtime, error);
  if (status != ATTN_STATUS_OK) return nullptr;
  Runtime made(runtime, attn_runtime_release);
  known = made;
  return made;
}

}  // namespace attn::xla
