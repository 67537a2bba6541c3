// Helpers for benchmarks that time device work alone: a pause on the device, during which the host
// can enqueue the measured work, and an L2 flush.
#pragma once

#include <chrono>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/memory.h"

namespace attn::cuda {

// A kernel of one thread that spins on the device's nanosecond timer. For one thread at a time.
class Pause {
 public:
  static Result<Pause> create(const Device& device);

  // Later work on `stream` starts at least `duration` after the device reaches this point.
  Status enqueue(void* stream, std::chrono::nanoseconds duration) const;

 private:
  explicit Pause(Kernel kernel) : kernel_(std::move(kernel)) {}
  Kernel kernel_;
};

// Overwrites a buffer four times as large as the L2 cache. For one thread at a time.
class L2Flush {
 public:
  static Result<L2Flush> create(const Device& device);
  Status enqueue(void* stream) const;

 private:
  L2Flush(Device device, DeviceBuffer buffer)
      : device_(std::move(device)), buffer_(std::move(buffer)) {}
  Device device_;
  DeviceBuffer buffer_;
};

}  // namespace attn::cuda
