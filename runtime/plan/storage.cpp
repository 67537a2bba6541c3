#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/base/descriptors.h"
#include "runtime/plan/bundle.h"
#include "runtime/plan/container.h"

namespace attn::plan {
namespace {

Error io_error(std::string_view doing, const std::string& path) {
  return {
      ErrorCode::io, fmt::format("cannot {} {}: {}", doing, path, std::strerror(errno)), {}, {}};
}

FileDescriptor open_file(const std::string& path, int flags) {
  return FileDescriptor(::open(path.c_str(), flags | O_CLOEXEC, 0666));
}

// One that no other writer of the same plan uses, in this process or another.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}.{}.{}.tmp", path, ::getpid(), counter.fetch_add(1));
}

struct Temporary {
  std::string path;
  FileDescriptor file;
};

// A process of the same id that was killed may have left one of the same name behind.
Result<Temporary> create_temporary(const std::string& path) {
  for (;;) {
    Temporary temporary{temporary_name(path), {}};
    temporary.file = open_file(temporary.path, O_WRONLY | O_CREAT | O_EXCL);
    if (temporary.file.valid()) return temporary;
    if (errno != EEXIST) return io_error("create", path);
  }
}

Status write_file(Temporary& temporary, std::string_view bytes) {
  auto& [path, file] = temporary;
  if (write_all(file.get(), bytes) && ::fsync(file.get()) == 0 && file.close()) {
    return {};
  }
  const Error error = io_error("write", path);
  ::unlink(path.c_str());
  return error;
}

Result<std::string> read_file(const std::string& path) {
  const FileDescriptor file = open_file(path, O_RDONLY);
  if (!file.valid()) return io_error("open", path);
  std::string bytes;
  std::array<char, 1 << 16> chunk;
  while (bytes.size() <= kMaxFileBytes) {
    const std::ptrdiff_t count = read_some(file.get(), chunk.data(), chunk.size());
    if (count < 0) return io_error("read", path);
    if (count == 0) return bytes;
    bytes.append(chunk.data(), static_cast<std::size_t>(count));
  }
  return {ErrorCode::plan_foreign,
          fmt::format("{}: the file is larger than any plan, {} bytes", path, kMaxFileBytes)};
}

Status save_bytes(std::string_view bytes, const std::string& path) {
  ATTN_ASSIGN(Temporary temporary, create_temporary(path));
  ATTN_RETURN_IF_ERROR(write_file(temporary, bytes));
  if (std::rename(temporary.path.c_str(), path.c_str()) == 0) return {};
  const Error error = io_error("write", path);
  ::unlink(temporary.path.c_str());
  return error;
}

Error at(const std::string& path, Error error) {
  error.message = fmt::format("{}: {}", path, error.message);
  return error;
}

}  // namespace

Status save(const Plan& plan, const std::string& path) { return save_bytes(serialize(plan), path); }

Status save(const Bundle& bundle, const std::string& path) {
  ATTN_RETURN_IF_ERROR(fits_file(bundle));
  return save_bytes(serialize(bundle), path);
}

Result<Bundle> load_bundle(const std::string& path) { return load_bundle(path, {}); }

Result<Bundle> load_bundle(const std::string& path, const CheckBytes& check) {
  ATTN_ASSIGN(const std::string bytes, read_file(path));
  if (check) {
    if (const Status status = check(bytes); !status.ok()) return at(path, status.error());
  }
  Result<Bundle> bundle = deserialize_bundle(bytes);
  if (!bundle.ok()) return at(path, bundle.error());
  return bundle;
}

Result<Plan> load(const std::string& path, Direction direction) {
  return load(path, direction, {});
}

Result<Plan> load(const std::string& path, Direction direction, const CheckBytes& check) {
  ATTN_ASSIGN(Bundle bundle, load_bundle(path, check));
  Result<Plan> plan = plan_of(std::move(bundle), direction);
  if (!plan.ok()) return at(path, plan.error());
  return plan;
}

}  // namespace attn::plan
