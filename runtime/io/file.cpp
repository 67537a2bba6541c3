#include "runtime/io/file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace attn::io {
namespace {

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Closer>;

Error failed(const std::string& path, const char* action) {
  return Error{ErrorCode::io,
               fmt::format("{} cannot be {}: {}", path, action, std::strerror(errno)),
               {},
               {}};
}

}  // namespace

Result<std::vector<std::byte>> read_file(const std::string& path) {
  File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return failed(path, "opened");
  std::vector<std::byte> bytes;
  std::vector<std::byte> piece(1 << 20);
  for (;;) {
    const std::size_t count = std::fread(piece.data(), 1, piece.size(), file.get());
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(count));
    if (count < piece.size()) break;
  }
  if (std::ferror(file.get()) != 0) return failed(path, "read");
  return bytes;
}

Status write_file(const std::string& path, std::span<const std::byte> bytes) {
  File file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) return failed(path, "created");
  if (std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) {
    return failed(path, "written");
  }
  if (std::fclose(file.release()) != 0) return failed(path, "written");
  return {};
}

}  // namespace attn::io
