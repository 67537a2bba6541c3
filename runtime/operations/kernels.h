// Launches of the kernels of append.cuh, control.cuh and merge.cuh.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/cuda/kernel.h"
#include "runtime/operations/parameters.h"

namespace attn::operations {

// The kernels on one device, loaded by the first launch. Thread-safe.
class Kernels {
 public:
  explicit Kernels(cuda::Device device) : device_(std::move(device)) {}

  // Each enqueues and returns. May be captured into a CUDA graph, the first time too. Errors: cuda,
  // unsupported (choose).
  Status append(const AppendParameters& parameters, std::int64_t blocks, void* stream);
  Status merge(const MergeParameters& parameters, std::int64_t blocks, void* stream);
  Status check(const ControlParameters& parameters, void* stream);

 private:
  struct Loaded {
    cuda::Kernel append, merge, check;
  };
  Result<const Loaded*> loaded();
  Status load();

  cuda::Device device_;
  std::mutex mutex_;  // guards owned_
  std::unique_ptr<const Loaded> owned_;
  std::atomic<const Loaded*> loaded_ = nullptr;  // owned_.get(), when it is complete
};

}  // namespace attn::operations
