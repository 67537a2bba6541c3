// What the executables of one device share: its context, its cuDNN, and handles to work with.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/cudnn/handles.h"

namespace attn::execute {

struct RuntimeOptions {
  int device = 0;            // CUDA ordinal
  std::string cudnn_folder;  // as for cudnn::Library::load: empty looks in the usual places
  // How many threads can be inside an execute at once; more wait for one of them. A handle is made
  // when more bindings live than ever before, up to this. 1 .. 64.
  int most_handles = 16;
  log::Sink log{};
  // Of workspaces, and of what executables and bindings hold. cuDNN's handles and the kernels take
  // theirs from the driver.
  cuda::AllocatorPointer allocator{};
};

// Safe to use from many threads. Everything made from it keeps it alive. Two of them, of one device
// or of several, know nothing of each other.
class Runtime {
 public:
  // Errors: cuda, cudnn, invalid_argument.
  static Result<std::shared_ptr<Runtime>> open(const RuntimeOptions& options = {});
  ~Runtime();

  const cuda::Device& device() const { return device_; }
  const cudnn::Library& library() const { return *library_; }
  const cuda::AllocatorPointer& allocator() const { return allocator_; }
  void log(log::Level level, const std::string& message) const;

  // Handles of threads that execute, and of those that load: no execute waits for a load.
  cudnn::Handles& executing() { return executing_; }
  cudnn::Handles& loading() { return loading_; }

 private:
  Runtime(cuda::Device device, std::shared_ptr<const cudnn::Library> library,
          const RuntimeOptions& options);

  cuda::Device device_;
  std::shared_ptr<const cudnn::Library> library_;
  log::Sink log_;
  cuda::AllocatorPointer allocator_;
  cudnn::Handles executing_;
  cudnn::Handles loading_;
};

}  // namespace attn::execute
