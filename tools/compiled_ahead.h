// Plans of several specs, compiled at once: most of the time of a short run on the GPU is that of
// compilers, which run in processes of their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "tools/plans.h"

namespace attn::tools {

// Compiles in threads; used by one.
class CompiledAhead {
 public:
  using Compile = std::function<Result<Plans>(std::size_t index)>;

  // Begins to call compile(0) to compile(count - 1), in this order, in `jobs` threads, 1 or more:
  // it must be thread-safe.
  CompiledAhead(std::size_t count, unsigned jobs, Compile compile);
  // Waits for what has begun; no other call begins.
  ~CompiledAhead();
  CompiledAhead(const CompiledAhead&) = delete;
  CompiledAhead& operator=(const CompiledAhead&) = delete;

  // Waits for what compile(index) returns or throws. Once for each index.
  Result<Plans> take(std::size_t index) { return results_[index].get_future().get(); }

 private:
  void work();

  const Compile compile_;
  std::vector<std::promise<Result<Plans>>> results_;
  std::atomic<std::size_t> next_ = 0;
  std::vector<std::jthread> threads_;  // the last member: they use the others
};

}  // namespace attn::tools
