// Plans by signature: looked up in memory, then in a folder, then built. Each is built once, even
// if many threads request it at once, and outside any lock.
//
//   cache::PlanCache cache;
//   const cache::Key key(plan::signature_of(plan));
//   ATTN_ASSIGN(const auto plan, cache.get(key, [&] { return compile(..); }));
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "runtime/cache/file_store.h"
#include "runtime/cache/memory_cache.h"

namespace attn::cache {

struct PlanCacheOptions {
  MemoryOptions memory;
  std::string folder;  // of the disk tier (default: folder.h); empty: none
  FileLimits files;
  // Called once, by the first thread that finds the folder unusable, for example read-only or on a
  // full disk. The request still gets its plan.
  std::function<void(const Error&)> warn;
};

// Thread-safe.
class PlanCache {
 public:
  using Pointer = std::shared_ptr<const plan::Plan>;
  using Build = std::function<Result<plan::Plan>()>;

  explicit PlanCache(PlanCacheOptions options = {});

  // The plan with this signature: it runs the key's program, for the key's target and cuDNN
  // version. Fields that the signature does not cover (spec_name, spec_text, bindings, source
  // positions, and shape, which says which other sizes the plan serves) come from whoever built it.
  // Damaged files are removed and never returned; so are files with an engine that is now known to
  // compute wrong results (cudnn::find_known_bad).
  //
  // Errors: those of `build`, of which `unsupported` is kept in memory (MemoryCache); plan_version
  // if it built a plan with another signature, for example because cuDNN was replaced.
  Result<Pointer> get(const Key& key, const Build& build);

  Counts counts() const { return counters_.read(); }
  Counts reset_counts() { return counters_.reset(); }
  std::size_t size() const { return memory_.size(); }    // plans in memory
  std::size_t bytes() const { return memory_.bytes(); }  // their approximate size
  void clear_memory() { memory_.clear(); }
  const std::optional<FileStore>& files() const { return files_; }

 private:
  std::optional<plan::Plan> load(const Key& key);
  Result<Pointer> make(const Key& key, const Build& build);
  void warn(const Error& error);

  Counters counters_;
  MemoryCache<const plan::Plan> memory_;
  std::optional<FileStore> files_;
  std::function<void(const Error&)> warn_;
  std::atomic<bool> warned_{false};
};

// Whether an engine of the plan, or one of its graphs, is known to compute wrong results.
bool is_known_bad(const plan::Plan& plan);

}  // namespace attn::cache
