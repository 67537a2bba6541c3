// A cache of loaded executables of one device, for applications with many plans.
#pragma once

#include <functional>
#include <memory>

#include "runtime/cache/memory_cache.h"
#include "runtime/execute/executable.h"

namespace attn::execute {

// Thread-safe; each executable is loaded once even if many threads request it at once. Executables
// that are held or bound elsewhere are not evicted; evicted ones are destroyed, including device
// memory and cuDNN descriptors, before the evicting call returns.
class ExecutableCache {
 public:
  // `limits.values.bytes` counts kernels, plan text, and device memory of executables.
  explicit ExecutableCache(std::shared_ptr<Runtime> runtime,
                           const cache::MemoryOptions& limits = {},
                           const LoadOptions& options = {});

  // Looks up by the plan's signature and a hash of its compiled code, so plans that differ only in
  // their kernels are both loaded. Errors: those of Executable::load.
  Result<Executable> get(const plan::Plan& plan);
  // Looks up by key alone, and calls `find` for the plan (for example cache::PlanCache::get) if the
  // executable is not cached. Errors: those of `find` too.
  using Find = std::function<Result<std::shared_ptr<const plan::Plan>>()>;
  Result<Executable> get(const cache::Key& key, const Find& find);

  Runtime& runtime() const { return *runtime_; }
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
