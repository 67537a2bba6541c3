// Loads kernels from compiled images and launches them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cuda/device.h"

namespace attn::cuda {

// How a kernel is launched: x, y, z.
struct LaunchShape {
  std::array<std::int64_t, 3> grid = {1, 1, 1};   // in blocks
  std::array<std::int64_t, 3> block = {1, 1, 1};  // in threads
  std::array<std::int64_t, 3> cluster = {1, 1, 1};
  std::int64_t shared_bytes = 0;  // dynamic shared memory per block
  bool overlaps = false;          // it may begin before the kernel before it has ended
};

class ModuleHandle;  // kernel.cpp

// A function of a module, which it keeps loaded. Launches are thread-safe.
class Kernel {
 public:
  // Sizes of the kernel's parameters in bytes, as the driver reports them. Errors: cuda, also from
  // drivers before CUDA 12.4, which cannot report them.
  Result<std::vector<std::size_t>> parameter_sizes() const;

  // Lets launches of this function, by anyone who found it in the module, take up to this much
  // dynamic shared memory. Needed where it exceeds 48 KiB with the kernel's static memory. Call it
  // before launches, once. Errors: cuda.
  Status allow_shared_bytes(std::int64_t bytes);

  // `arguments` points to the arguments' values, which are read before this returns. Neither waits
  // nor allocates, so it can be captured into a CUDA graph. Errors: cuda.
  Status launch(void* stream, const LaunchShape& shape, void* const* arguments) const;

 private:
  friend class Module;
  Kernel(std::shared_ptr<const ModuleHandle> module, void* function)
      : module_(std::move(module)), function_(function) {}

  std::shared_ptr<const ModuleHandle> module_;
  void* function_ = nullptr;  // CUfunction
};

// A compiled image on a device.
class Module {
 public:
  // Loads a cubin for the device's architecture. Errors: cuda, with the driver's text.
  static Result<Module> load(const Device& device, std::string_view image);

  // Errors: cuda, if it has no such kernel.
  Result<Kernel> kernel(const char* name) const;

 private:
  explicit Module(std::shared_ptr<const ModuleHandle> handle) : handle_(std::move(handle)) {}

  std::shared_ptr<const ModuleHandle> handle_;
};

}  // namespace attn::cuda
