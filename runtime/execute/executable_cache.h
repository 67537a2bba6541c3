// Loaded executables of one device: what applications with many plans keep.
#pragma once

#include <functional>
#include <memory>

#include "runtime/cache/memory_cache.h"
#include "runtime/execute/executable.h"

namespace attn::execute {

// Safe to use from many threads; each executable is loaded once however many ask for it at once.
// What somebody still has, or is bound, stays; what leaves is destroyed, device memory and
// descriptors of cuDNN included, before the call that made it leave returns.
class ExecutableCache {
 public:
  // `limits.values.bytes`: of kernels, of plans as text, and of device memory that executables
  // hold.
  explicit ExecutableCache(std::shared_ptr<Runtime> runtime,
                           const cache::MemoryOptions& limits = {},
                           const LoadOptions& options = {});

  // By the plan's signature and the bytes of what was compiled: of two plans that differ in their
  // kernels alone each is loaded. Errors: those of Executable::load.
  Result<Executable> get(const plan::Plan& plan);
  // Without a plan in hand, which `find` is asked for when the executable is not there
  // (cache::PlanCache::get, say), and by this key alone. Errors: those of `find` too.
  using Find = std::function<Result<std::shared_ptr<const plan::Plan>>()>;
  Result<Executable> get(const cache::Key& key, const Find& find);

  const Runtime& runtime() const { return *runtime_; }
  cache::Counts counts() const { return counters_.read(); }
  cache::Counts reset_counts() { return counters_.reset(); }
  std::size_t size() const { return loaded_.size(); }
  std::size_t bytes() const { return loaded_.bytes(); }
  void clear() { loaded_.clear(); }

 private:
  using Load = std::function<Result<Executable>()>;
  Result<Executable> get_or_load(const cache::Key& key, const Load& load);

  std::shared_ptr<Runtime> runtime_;
  LoadOptions options_;
  cache::Counters counters_;
  cache::MemoryCache<const ExecutableState> loaded_;
};

}  // namespace attn::execute
