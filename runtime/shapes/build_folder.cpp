#include "runtime/shapes/build_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace attn::shapes {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "attn-build-";
// Younger ones may be between being made and being locked.
constexpr std::chrono::seconds kStaleAge = std::chrono::minutes(10);

FileDescriptor open_folder(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool lock(const FileDescriptor& folder) { return ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0; }

// Whether it is ours and nobody's any more. `folder` keeps the lock then.
bool is_stale(const FileDescriptor& folder) {
  struct stat status {};
  if (!folder.valid() || ::fstat(folder.get(), &status) != 0) return false;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const bool old = now - std::chrono::seconds(status.st_mtim.tv_sec) > kStaleAge;
  return status.st_uid == ::geteuid() && old && lock(folder);
}

void sweep(const fs::path& parent) {
  std::error_code error;
  fs::directory_iterator entry(parent, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    const FileDescriptor folder = open_folder(entry->path().string());
    std::error_code ignored;
    if (is_stale(folder)) fs::remove_all(entry->path(), ignored);
  }
}

}  // namespace

Result<BuildFolder> BuildFolder::create() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) return {ErrorCode::io, "no folder for temporary files: " + error.message()};
  sweep(parent);
  std::string path = (parent / (std::string(kPrefix) + "XXXXXX")).string();
  if (mkdtemp(path.data()) == nullptr) return {ErrorCode::io, errno_text(path)};
  FileDescriptor folder = open_folder(path);
  if (folder.valid()) (void)lock(folder);  // where there are no locks, its age protects it
  return BuildFolder(std::move(path), std::move(folder));
}

BuildFolder::BuildFolder(BuildFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}

BuildFolder::~BuildFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace attn::shapes
