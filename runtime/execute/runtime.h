// What the executables of one device share: its context, its cuDNN, and cuDNN handles. cuDNN is
// loaded when something needs it first: executables without steps of cuDNN's need the driver alone.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/cudnn/handles.h"
#include "runtime/operations/kernels.h"

namespace attn::execute {

struct RuntimeOptions {
  int device = 0;            // CUDA ordinal
  std::string cudnn_folder;  // empty: default paths; see cudnn::Library::load
  // Maximum number of threads inside an execute at once; further threads wait. Handles are created,
  // up to this number, as the number of live bindings grows. 1 .. 64.
  int most_handles = 16;
  log::Sink log{};
  // Used for workspaces and the memory of executables and bindings. cuDNN's handles and kernel code
  // still allocate from the driver.
  cuda::AllocatorPointer allocator{};
};

// Thread-safe. Objects created from it keep it alive. Several runtimes, of one device or more, are
// independent.
class Runtime {
 public:
  // Errors: cuda, invalid_argument.
  static Result<std::shared_ptr<Runtime>> open(const RuntimeOptions& options = {});
  ~Runtime();

  const cuda::Device& device() const { return device_; }
  const cuda::AllocatorPointer& allocator() const { return allocator_; }
  // Kernels of libattn's own, loaded when they are needed first.
  operations::Kernels& operations() { return operations_; }
  void log(log::Level level, const std::string& message) const;

  struct Cudnn {
    Cudnn(std::shared_ptr<const cudnn::Library> its_library, int most_handles);
    std::shared_ptr<const cudnn::Library> library;
    // Separate handles for executing and loading threads: an execute never waits for a load.
    cudnn::Handles executing;
    cudnn::Handles loading;
  };
  // Loads it if nothing did; it lives as long as the runtime. Errors: those of
  // cudnn::Library::load; the next call tries again.
  Result<Cudnn*> cudnn();
  bool has_loaded_cudnn() const;

 private:
  Runtime(cuda::Device device, const RuntimeOptions& options);

  cuda::Device device_;
  std::string cudnn_folder_;
  int most_handles_;
  log::Sink log_;
  cuda::AllocatorPointer allocator_;
  operations::Kernels operations_;
  mutable std::mutex mutex_;  // guards cudnn_
  std::unique_ptr<Cudnn> cudnn_;
};

}  // namespace attn::execute
