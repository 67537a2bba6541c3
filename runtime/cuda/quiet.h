// Helpers for benchmarks that time device work alone: a pause on the device, during which the host
// can enqueue the measured work, and an L2 flush.
#pragma once

#include <chrono>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/cuda/memory.h"

namespace attn::cuda {

// A kernel of one thread that spins on the device's nanosecond timer. For one thread at a time.
class Pause {
 public:
  static Result<Pause> create(const Device& device);
  Pause(Pause&& other) noexcept;
  Pause& operator=(Pause&& other) noexcept;
  ~Pause();

  // Later work on `stream` starts at least `duration` after the device reaches this point.
  Status enqueue(void* stream, std::chrono::nanoseconds duration) const;

 private:
  Pause() = default;
  std::shared_ptr<const Context> context_;
  void* module_ = nullptr;    // CUmodule
  void* function_ = nullptr;  // CUfunction
};

// Overwrites a buffer four times as large as the L2 cache. For one thread at a time.
class L2Flush {
 public:
  static Result<L2Flush> create(const Device& device);
  Status enqueue(void* stream) const;

 private:
  L2Flush(std::shared_ptr<const Context> context, DeviceBuffer buffer);
  std::shared_ptr<const Context> context_;
  DeviceBuffer buffer_;
};

}  // namespace attn::cuda
