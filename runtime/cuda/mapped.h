// Host memory that the device reads and writes in place.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/cuda/device.h"

namespace attn::cuda {

// Owned pinned host memory of zero bytes, mapped into the device's address space. What the device
// writes, the host sees without a call of the driver. For one thread at a time.
class MappedBuffer {
 public:
  // Errors: cuda.
  static Result<MappedBuffer> allocate(const Device& device, std::size_t bytes);
  MappedBuffer(MappedBuffer&& other) noexcept;
  MappedBuffer& operator=(MappedBuffer&& other) noexcept;
  ~MappedBuffer();

  void* host() const { return host_; }
  void* device() const { return device_; }  // the same memory, as kernels address it

 private:
  MappedBuffer() = default;
  std::shared_ptr<const Context> context_;
  void* host_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace attn::cuda
