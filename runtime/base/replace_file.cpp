#include "runtime/base/replace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "runtime/base/descriptors.h"

namespace attn {
namespace {

Error io_error(std::string_view doing, const std::string& path) {
  return {ErrorCode::io, fmt::format("cannot {} {}: {}", doing, path, std::strerror(errno))};
}

// A file name that no other writer uses, in this process or another.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}.{}.{}.tmp", path, ::getpid(), counter.fetch_add(1));
}

struct Temporary {
  std::string path;
  FileDescriptor file;
};

// Retries: a killed process with the same id may have left a file of the same name.
Result<Temporary> create_temporary(const std::string& path, mode_t mode) {
  for (;;) {
    Temporary temporary{temporary_name(path), {}};
    temporary.file = FileDescriptor(
        ::open(temporary.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (temporary.file.valid()) return temporary;
    if (errno != EEXIST) return io_error("create", path);
  }
}

// `old_mode`: of the file that is replaced.
bool finish(Temporary& temporary, std::string_view bytes, const std::string& path,
            std::optional<mode_t> old_mode) {
  FileDescriptor& file = temporary.file;
  if (old_mode && ::fchmod(file.get(), *old_mode & 07777) != 0) return false;
  return write_all(file.get(), bytes) && ::fsync(file.get()) == 0 && file.close() &&
         std::rename(temporary.path.c_str(), path.c_str()) == 0;
}

Status write_in_place(const std::string& path, std::string_view bytes) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.valid() && write_all(file.get(), bytes) && file.close()) return {};
  return io_error("write", path);
}

}  // namespace

Status replace_file(const std::string& path, std::string_view bytes, mode_t mode) {
  struct stat old {};
  const bool is_there = ::stat(path.c_str(), &old) == 0;
  if (is_there && !S_ISREG(old.st_mode)) return write_in_place(path, bytes);
  if (is_there && ::access(path.c_str(), W_OK) != 0) return io_error("write", path);
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  const std::string real = is_there && !error ? target.string() : path;
  ATTN_ASSIGN(Temporary temporary, create_temporary(real, mode));
  const auto old_mode = is_there ? std::optional(old.st_mode) : std::nullopt;
  if (finish(temporary, bytes, real, old_mode)) return {};
  const Error failure = io_error("write", path);
  ::unlink(temporary.path.c_str());
  return failure;
}

}  // namespace attn
