#include "runtime/base/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace attn {
namespace {

Error cannot_read(const std::string& path, const std::string& why) {
  return {ErrorCode::io, fmt::format("cannot read {}: {}", path.empty() ? "''" : path, why)};
}

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return std::strerror(EISDIR);
  if (S_ISFIFO(mode)) return "it is a FIFO, not a regular file";
  if (S_ISSOCK(mode)) return "it is a socket, not a regular file";
  return "it is a device, not a regular file";
}

}  // namespace

// Checked before opening, since opening a device can have side effects, and again afterwards, since
// the path may have been replaced in between.
Result<FileDescriptor> open_regular_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return cannot_read(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return cannot_read(path, kind_of(status.st_mode));
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.valid() || ::fstat(file.get(), &status) != 0) {
    return cannot_read(path, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) return cannot_read(path, kind_of(status.st_mode));
  return file;
}

Status read_more(const FileDescriptor& file, const std::string& path, std::size_t size,
                 std::string& bytes) {
  std::array<char, 1 << 16> chunk;
  while (size > 0) {
    const std::ptrdiff_t count = read_some(file.get(), chunk.data(), std::min(size, chunk.size()));
    if (count < 0) return cannot_read(path, std::strerror(errno));
    if (count == 0) return {};
    bytes.append(chunk.data(), static_cast<std::size_t>(count));
    size -= static_cast<std::size_t>(count);
  }
  return {};
}

Result<std::string> read_regular_file(const std::string& path, std::size_t limit) {
  ATTN_ASSIGN(const FileDescriptor file, open_regular_file(path));
  std::string bytes;
  ATTN_RETURN_IF_ERROR(read_more(file, path, limit, bytes));
  return bytes;
}

}  // namespace attn
