// A CUDA device and its primary context (the one that the CUDA runtime API and frameworks use).
//
// Users of this directory need no CUDA header: streams are `void*` (CUstream or cudaStream_t; null
// is the default stream) and device addresses are `void*`. Without a driver every function returns
// an error `cuda` that says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/status.h"

namespace attn::cuda {

class Context;  // runtime/cuda/context.h, internal to runtime/cuda

// Number of devices visible to the driver; 0 is not an error. Errors: cuda, if there is no driver.
Result<int> device_count();

// A shared handle: copies, and the buffers, streams and events created from it, keep the primary
// context retained. Immutable and thread-safe.
class Device {
 public:
  // Retains the device's primary context. Errors: invalid_argument for an ordinal out of range,
  // cuda.
  static Result<Device> open(int ordinal);

  // Makes the context current on this thread until another one is. Callers of this library need not
  // do so: its functions use Scope.
  Status make_current() const;

  // Free device memory in bytes. Errors: cuda.
  Result<std::size_t> free_bytes() const;

  int ordinal() const;
  const std::string& name() const;  // "NVIDIA H200"
  std::int64_t sm() const;          // compute capability * 10: 90 for Hopper
  std::int64_t l2_bytes() const;    // size of the L2 cache
  const std::shared_ptr<const Context>& context() const { return context_; }

 private:
  explicit Device(std::shared_ptr<const Context> context);
  std::shared_ptr<const Context> context_;
};

// Makes a device's context current on this thread, and restores the previous one on destruction; if
// there was none, the device's context stays current. Takes some nanoseconds if it is already
// current.
class Scope {
 public:
  Scope() = default;
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // Call once. Errors: cuda.
  Status enter(const Device& device) { return enter(*device.context()); }
  Status enter(const Context& context);

 private:
  const Context* entered_ = nullptr;
  void* before_ = nullptr;  // CUcontext
};

}  // namespace attn::cuda
