// The disk tier: a folder of plan files named by the hash of their signature.
//
// Any number of threads and processes may use a folder at once, and any of them may be killed at
// any time: files appear complete, by a rename, and are never modified. A killed writer leaves a
// temporary file, which is never read and is pruned when old. Plans are code: a folder or file that
// is owned by a user other than this one and root, or that others may write to, is neither read nor
// written.
//
// A file's modification time is its last use. It is set at every load, so it does not depend on how
// the file system handles access times.
// matter how the file system keeps times of access.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cache/key.h"

namespace attn::cache {

struct FileLimits {
  std::uint64_t bytes = std::uint64_t{1} << 30;            // total of all plan files
  std::chrono::seconds age = std::chrono::hours(24 * 90);  // since the last use
};

struct StoredFile {
  Hash128 hash;
  std::string path;
  std::uint64_t bytes = 0;
  std::chrono::system_clock::time_point used;
};

struct Pruned {
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  std::size_t temporaries = 0;
};

// Immutable and thread-safe. Files with other names in the folder are left alone.
class FileStore {
 public:
  explicit FileStore(std::string folder, FileLimits limits = {})
      : folder_(std::move(folder)), limits_(limits) {}

  const std::string& folder() const { return folder_; }
  const FileLimits& limits() const { return limits_; }
  std::string path_of(const Hash128& hash) const;

  // The plan with this signature; nullopt if there is no file, or one with the same hash but
  // another signature. Errors: those of read; the file is not removed then.
  Result<std::optional<plan::Plan>> load(const Key& key) const;

  // Creates the folder if needed, writes or replaces the file, and prunes. Errors: io, for example
  // if the folder is read-only or the disk is full; existing files are kept then.
  Status save(const plan::Plan& plan) const;

  // The plan in a file of list(), whatever its signature. Does not count as a use. Errors: those of
  // plan::load; plan_damaged if the file name does not match the plan.
  static Result<plan::Plan> read(const StoredFile& file);

  void remove(const Hash128& hash) const;

  // Most recently used first; empty if there is no folder. Errors: io.
  Result<std::vector<StoredFile>> list() const;

  // Removes files unused for longer than the limit, then the least recently used ones until the
  // rest fits the limit, and temporary files older than an hour. Errors: io.
  Result<Pruned> prune(const FileLimits& limits) const;
  Result<Pruned> prune() const { return prune(limits_); }

  // Removes all plan files and temporary files. Errors: io.
  Result<Pruned> clear() const;

 private:
  std::string folder_;
  FileLimits limits_;
};

}  // namespace attn::cache
