#include "runtime/picker/build_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

namespace attn::picker {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "attn-picker-build-";
constexpr std::string_view kUnique = "XXXXXX";  // for mkdtemp
constexpr const char* kMarker = ".made-by-attn-picker";
constexpr mode_t kFolderMode = 0700;  // the mode that mkdtemp uses
// A younger folder may not be locked yet.
constexpr std::chrono::seconds kStaleAge = std::chrono::minutes(10);

FileDescriptor open_folder(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool lock(const FileDescriptor& folder) { return ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0; }

bool has_our_name(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(kPrefix) && name.size() == kPrefix.size() + kUnique.size() &&
         std::all_of(name.begin() + kPrefix.size(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0; });
}

Status mark(const FileDescriptor& folder) {
  const FileDescriptor marker(
      ::openat(folder.get(), kMarker, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  return marker.valid() ? Status() : Status(ErrorCode::io, errno_text(kMarker));
}

bool is_marked(const FileDescriptor& folder) {
  struct stat status {};
  return ::fstatat(folder.get(), kMarker, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(status.st_mode) && status.st_uid == ::geteuid();
}

// Whether create() made it and no process uses it any more. `folder` then holds the lock.
bool is_stale(const FileDescriptor& folder) {
  struct stat status {};
  if (!folder.valid() || ::fstat(folder.get(), &status) != 0) return false;
  if ((status.st_mode & 07777) != kFolderMode || !is_marked(folder)) return false;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const bool old = now - std::chrono::seconds(status.st_mtim.tv_sec) > kStaleAge;
  return status.st_uid == ::geteuid() && old && lock(folder);
}

void sweep(const fs::path& parent) {
  std::error_code error;
  fs::directory_iterator entry(parent, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!has_our_name(entry->path())) continue;
    const FileDescriptor folder = open_folder(entry->path().string());
    std::error_code ignored;
    if (is_stale(folder)) fs::remove_all(entry->path(), ignored);
  }
}

}  // namespace

Result<BuildFolder> BuildFolder::create() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error)
    return {ErrorCode::io, "cannot find the folder for temporary files: " + error.message()};
  sweep(parent);
  std::string path = (parent / fmt::format("{}{}", kPrefix, kUnique)).string();
  if (mkdtemp(path.data()) == nullptr) return {ErrorCode::io, errno_text(path)};
  BuildFolder made(path, open_folder(path));
  Status status = made.lock_.valid() ? Status() : Status(ErrorCode::io, errno_text(path));
  if (status.ok()) {
    (void)lock(made.lock_);  // without lock support, sweep() gets no lock either
    status = mark(made.lock_);
  }
  if (status.ok()) return made;
  ::rmdir(path.c_str());  // it is empty, and rmdir needs no descriptor
  return status.error();
}

BuildFolder::BuildFolder(BuildFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}

BuildFolder::~BuildFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace attn::picker
