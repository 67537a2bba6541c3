// Loads a kernel from a compiled image and launches it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cuda/device.h"

namespace attn::cuda {

// For one thread at a time.
class Kernel {
 public:
  // Loads a cubin for the device's architecture. Errors: cuda, with the driver's text.
  static Result<Kernel> load(const Device& device, std::string_view image, const char* name);
  Kernel(Kernel&& other) noexcept;
  Kernel& operator=(Kernel&& other) noexcept;
  ~Kernel();

  // Sizes of the kernel's parameters in bytes, as the driver reports them. Errors: cuda, also from
  // drivers before CUDA 12.4, which cannot report them.
  Result<std::vector<std::size_t>> parameter_sizes() const;

  // Enqueues at least `threads` threads, in blocks of 256 along x; nothing for 0. `arguments`
  // points to the arguments' values, which are read before this returns. Neither waits nor
  // allocates, so it can be captured into a CUDA graph. Errors: cuda.
  Status launch(void* stream, std::int64_t threads, void* const* arguments) const;

 private:
  Kernel() = default;
  std::shared_ptr<const Context> context_;
  void* module_ = nullptr;    // CUmodule
  void* function_ = nullptr;  // CUfunction
};

}  // namespace attn::cuda
