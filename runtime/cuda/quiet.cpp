#include "runtime/cuda/quiet.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/cuda/context.h"
#include "runtime/cuda/pause_ptx.h"

namespace attn::cuda {

Result<Pause> Pause::create(const Device& device) {
  Pause pause;
  pause.context_ = device.context();
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(*pause.context_));
  const Driver& driver = pause.context_->driver();
  CUmodule module = nullptr;
  ATTN_RETURN_IF_ERROR(pause.context_->check(driver.module_load_data(&module, kPausePtx),
                                             "loading the pause kernel"));
  pause.module_ = module;
  CUfunction function = nullptr;
  ATTN_RETURN_IF_ERROR(pause.context_->check(
      driver.module_get_function(&function, module, "attn_pause"), "finding the pause kernel"));
  pause.function_ = function;
  return pause;
}

Pause::Pause(Pause&& other) noexcept
    : context_(std::move(other.context_)),
      module_(std::exchange(other.module_, nullptr)),
      function_(std::exchange(other.function_, nullptr)) {}

Pause& Pause::operator=(Pause&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(module_, other.module_);
  std::swap(function_, other.function_);
  return *this;
}

Pause::~Pause() {
  if (module_ == nullptr) return;
  Scope scope;
  if (!scope.enter(*context_).ok()) return;
  context_->driver().module_unload(static_cast<CUmodule>(module_));
}

Status Pause::enqueue(void* stream, std::chrono::nanoseconds duration) const {
  unsigned long long nanoseconds = static_cast<unsigned long long>(duration.count());
  std::array<void*, 1> arguments = {&nanoseconds};
  return context_->check(
      context_->driver().launch_kernel(static_cast<CUfunction>(function_), 1, 1, 1, 1, 1, 1, 0,
                                       static_cast<CUstream>(stream), arguments.data(), nullptr),
      "launching the pause kernel");
}

L2Flush::L2Flush(std::shared_ptr<const Context> context, DeviceBuffer buffer)
    : context_(std::move(context)), buffer_(std::move(buffer)) {}

Result<L2Flush> L2Flush::create(const Device& device) {
  constexpr std::int64_t kAtLeast = 64 << 20;
  const auto bytes = static_cast<std::size_t>(std::max(kAtLeast, 4 * device.l2_bytes()));
  ATTN_ASSIGN(DeviceBuffer buffer, DeviceBuffer::allocate(device, bytes));
  return L2Flush(device.context(), std::move(buffer));
}

Status L2Flush::enqueue(void* stream) const {
  return context_->check(
      context_->driver().memset_bytes_async(to_address(buffer_.data()), 0, buffer_.size(),
                                            static_cast<CUstream>(stream)),
      "flushing the L2 cache");
}

}  // namespace attn::cuda
