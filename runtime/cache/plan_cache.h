// Plans by signature: in memory, then in a folder, then built; each built once however many threads
// ask at once, and outside any lock.
//
//   cache::PlanCache cache;
//   const cache::Key key(plan::signature_of(program, target, cudnn_version));
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
  std::string folder;  // of the disk tier (folder.h has the usual one); empty: none
  FileLimits files;
  // Called once, by the first thread that finds the folder unusable: a full disk, say, or one that
  // is read-only. Whoever asked for the plan gets it all the same.
  std::function<void(const Error&)> warn;
};

// Safe to use from many threads.
class PlanCache {
 public:
  using Pointer = std::shared_ptr<const plan::Plan>;
  using Build = std::function<Result<plan::Plan>()>;

  explicit PlanCache(PlanCacheOptions options = {});

  // The plan of that signature: it runs what the key says, for the target and version of cuDNN that
  // it says. What is for people (spec_name, spec_text, bindings, source positions), and what the
  // spec means at other sizes (shape), is that of whoever built it. A file that is damaged is never the answer, but is removed, and so is one
  // with an engine that is known by now to compute wrongly (cudnn::find_known_bad).
  //
  // Errors: those of `build`, of which `unsupported` is kept in memory (MemoryCache); plan_version
  // when it made a plan of another signature, as when cuDNN was replaced meanwhile.
  Result<Pointer> get(const Key& key, const Build& build);

  Counts counts() const { return counters_.read(); }
  Counts reset_counts() { return counters_.reset(); }
  std::size_t size() const { return memory_.size(); }    // plans in memory
  std::size_t bytes() const { return memory_.bytes(); }  // of them, about
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

// Whether an engine that the plan uses, or a graph, is known to compute wrongly.
bool is_known_bad(const plan::Plan& plan);

}  // namespace attn::cache
