#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/plan/container.h"
#include "runtime/plan/plan.h"

namespace attn::plan {
namespace {

Error io_error(std::string_view doing, const std::string& path) {
  return {
      ErrorCode::io, fmt::format("cannot {} {}: {}", doing, path, std::strerror(errno)), {}, {}};
}

class File {
 public:
  File(const std::string& path, int flags) : descriptor_(::open(path.c_str(), flags, 0666)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

  bool close() {
    const int descriptor = descriptor_;
    descriptor_ = -1;
    return ::close(descriptor) == 0;
  }

 private:
  int descriptor_;
};

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// One that no other writer of the same plan uses, in this process or another.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}.{}.{}.tmp", path, ::getpid(), counter.fetch_add(1));
}

Status write_file(const std::string& path, std::string_view bytes) {
  File file(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC);
  if (!file.is_open()) return io_error("create", path);
  if (write_all(file.descriptor(), bytes) && ::fsync(file.descriptor()) == 0 && file.close()) {
    return {};
  }
  const Error error = io_error("write", path);
  ::unlink(path.c_str());
  return error;
}

Result<std::string> read_file(const std::string& path) {
  const File file(path, O_RDONLY | O_CLOEXEC);
  if (!file.is_open()) return io_error("open", path);
  std::string bytes;
  std::array<char, 1 << 16> chunk;
  while (bytes.size() <= kMaxFileBytes) {
    const ssize_t count = ::read(file.descriptor(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error("read", path);
    if (count == 0) return bytes;
    bytes.append(chunk.data(), static_cast<std::size_t>(count));
  }
  return {ErrorCode::plan_foreign,
          fmt::format("{}: the file is larger than any plan, {} bytes", path, kMaxFileBytes)};
}

}  // namespace

Status save(const Plan& plan, const std::string& path) {
  const std::string temporary = temporary_name(path);
  ATTN_RETURN_IF_ERROR(write_file(temporary, serialize(plan)));
  if (std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const Error error = io_error("write", path);
  ::unlink(temporary.c_str());
  return error;
}

Result<Plan> load(const std::string& path) {
  ATTN_ASSIGN(const std::string bytes, read_file(path));
  Result<Plan> plan = deserialize(bytes);
  if (plan.ok()) return plan;
  Error error = plan.error();
  error.message = fmt::format("{}: {}", path, error.message);
  return error;
}

}  // namespace attn::plan
