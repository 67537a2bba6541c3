// The disk tier: a folder of plan files that are named by what they are for.
//
// Any number of threads and processes may use a folder at once, and any of them may be killed at
// any moment: a file comes into being whole, by a rename, and is never written to again. What a
// killed writer leaves behind is a temporary file, which is never read, and pruned when it is old.
// Plans are code: a folder or file that belongs to somebody else than this user and root, or that
// others may write to, is not read and not written to.
//
// A file's time of modification is its last use: it is set here at every load, so it does not
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
  std::uint64_t bytes = std::uint64_t{1} << 30;            // of all plan files together
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

// Immutable, safe to share between threads. Files of other names in the folder are left alone.
class FileStore {
 public:
  explicit FileStore(std::string folder, FileLimits limits = {})
      : folder_(std::move(folder)), limits_(limits) {}

  const std::string& folder() const { return folder_; }
  const FileLimits& limits() const { return limits_; }
  std::string path_of(const Hash128& hash) const;

  // The plan of that signature, nothing when there is none: no file, or one of another signature
  // with the same hash. Errors: those of read; the file is still there then.
  Result<std::optional<plan::Plan>> load(const Key& key) const;

  // Makes the folder when there is none, writes the file, or replaces it, and prunes. Errors: io,
  // from a folder that cannot be written to or a full disk; what was there is there still.
  Status save(const plan::Plan& plan) const;

  // The plan in a file of list(), whatever its text; no use of it. Errors: those of plan::load, and
  // plan_damaged when its name is not its plan's.
  static Result<plan::Plan> read(const StoredFile& file);

  void remove(const Hash128& hash) const;

  // Those used last first; none when there is no folder. Errors: io.
  Result<std::vector<StoredFile>> list() const;

  // Removes what was not used for longer than the limit, the least recently used until the rest is
  // within the limit, and temporary files older than an hour. Errors: io.
  Result<Pruned> prune(const FileLimits& limits) const;
  Result<Pruned> prune() const { return prune(limits_); }

  // Removes all plan files and temporary files. Errors: io.
  Result<Pruned> clear() const;

 private:
  std::string folder_;
  FileLimits limits_;
};

}  // namespace attn::cache
