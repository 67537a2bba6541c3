// Whether what was bound has a value for every score that depends on it. Private to this room.
#pragma once

#include <memory>
#include <mutex>

#include "runtime/cuda/kernel.h"
#include "runtime/cuda/memory.h"
#include "runtime/execute/addresses.h"
#include "runtime/plan/plan.h"

namespace attn::execute {

// The kernels of a plan::IndexCheck. Safe to use from many threads, which wait for each other.
class IndexChecker {
 public:
  static Result<IndexChecker> load(const plan::IndexCheck& check, const std::string& image,
                                   const cuda::Device& device,
                                   const cuda::AllocatorPointer& allocator = nullptr);

  // Of device memory.
  static constexpr std::size_t kBytes = sizeof(std::uint64_t);

  // Waits for the answer. Errors: binding, naming the expression and the place; cuda.
  Status run(const Memory& memory, const Bases& bases) const;

 private:
  // What the kernels write to.
  struct Word {
    std::mutex mutex;  // who has it, has the word
    cuda::DeviceBuffer buffer;
  };
  IndexChecker(plan::IndexCheck check, cuda::Device device, cuda::Kernel quick, cuda::Kernel exact,
               std::unique_ptr<Word> word);
  // What the kernel makes of a word of ones.
  Result<std::uint64_t> word_after(const cuda::Kernel& kernel, std::int64_t threads,
                                   const Memory& memory, const Bases& bases) const;

  plan::IndexCheck check_;
  cuda::Device device_;
  cuda::Kernel quick_;
  cuda::Kernel exact_;
  std::unique_ptr<Word> word_;
};

// The error for what the exact kernel found.
Error describe_fault(const plan::IndexCheck& check, std::uint64_t found);

}  // namespace attn::execute
