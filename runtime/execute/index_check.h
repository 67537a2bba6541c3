// Checks that captured tensors and params give every score a value. Internal to runtime/execute.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "runtime/cuda/memory.h"
#include "runtime/cuda/stream.h"
#include "runtime/execute/addresses.h"
#include "runtime/execute/plan_kernel.h"
#include "runtime/plan/plan.h"

namespace attn::execute {

// The kernels of a plan::IndexCheck. Thread-safe; concurrent calls wait for each other.
class IndexChecker {
 public:
  static Result<IndexChecker> load(const plan::IndexCheck& check, const std::string& image,
                                   const cuda::Device& device,
                                   const cuda::AllocatorPointer& allocator = nullptr);

  // Device memory that it holds.
  static constexpr std::size_t kBytes = sizeof(std::uint64_t);

  // Runs behind what the default stream and `stream` (null: none more) were given before, and waits
  // for the result. Errors: binding, naming the expression and the position; cuda.
  Status run(const Memory& memory, const Bases& bases, void* stream) const;
  // While a stream is captured nothing can be run. Errors: binding, unless a run found no fault.
  Status check_ran() const;

 private:
  // The word that the kernels write.
  struct Word {
    std::mutex mutex;  // guards the word
    std::atomic<bool> was_right = false;
    cuda::DeviceBuffer buffer;
  };
  IndexChecker(plan::IndexCheck check, cuda::Device device, LoadedLaunch quick, LoadedLaunch exact,
               std::unique_ptr<Word> word);
  // Runs the kernel on a word with all bits set, and returns the word.
  Result<std::uint64_t> word_after(const LoadedLaunch& loaded, const plan::Launch& launch,
                                   const Memory& memory, const Bases& bases,
                                   const cuda::Stream& on) const;

  plan::IndexCheck check_;
  cuda::Device device_;
  LoadedLaunch quick_;
  LoadedLaunch exact_;
  std::unique_ptr<Word> word_;
};

// The error for a word written by the exact kernel.
Error describe_fault(const plan::IndexCheck& check, std::uint64_t found);

}  // namespace attn::execute
