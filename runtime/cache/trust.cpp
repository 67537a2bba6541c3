#include "runtime/cache/trust.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace attn::cache {
namespace {

constexpr uid_t kRoot = 0;
constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;

Error not_trusted(const std::string& path, const std::string& why, const char* help) {
  return {ErrorCode::io,
          fmt::format("{} is not used as a plan cache: {}", path, why),
          {"plans are code, so only files owned by you or root are used", help},
          {}};
}

Status check_owner(const struct stat& status, const std::string& path) {
  if (status.st_uid != ::geteuid() && status.st_uid != kRoot) {
    return not_trusted(path, fmt::format("it is owned by another user, {}", status.st_uid),
                       "set ATTN_CACHE_DIR to another folder");
  }
  if ((status.st_mode & kOthersMayWrite) != 0) {
    return not_trusted(path,
                       fmt::format("other users may write to it (mode {:o})",
                                   static_cast<unsigned>(status.st_mode & 07777)),
                       "remove that with `chmod go-w`; others may have written the existing plans");
  }
  return {};
}

Error cannot_open(const std::string& path) {
  return {ErrorCode::io, errno_text("cannot open " + path), {}, {}};
}

}  // namespace

Result<FileDescriptor> open_trusted_folder(const std::string& path) {
  FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!folder.valid() || ::fstat(folder.get(), &status) != 0) return cannot_open(path);
  ATTN_RETURN_IF_ERROR(check_owner(status, path));
  return folder;
}

Result<FileDescriptor> open_trusted_file(const std::string& path) {
  const std::filesystem::path parts(path);
  const std::string parent = parts.has_parent_path() ? parts.parent_path().string() : ".";
  ATTN_ASSIGN(const FileDescriptor folder, open_trusted_folder(parent));
  FileDescriptor file(::openat(folder.get(), parts.filename().c_str(),
                               O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return cannot_open(path);
  if (!S_ISREG(status.st_mode)) return not_trusted(path, "it is not a regular file", "remove it");
  ATTN_RETURN_IF_ERROR(check_owner(status, path));
  return file;
}

}  // namespace attn::cache
