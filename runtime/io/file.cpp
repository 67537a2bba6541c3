#include "runtime/io/file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "runtime/base/regular_file.h"

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

Result<std::vector<std::byte>> read_file(const std::string& path, std::string_view magic) {
  ATTN_ASSIGN(const FileDescriptor file, open_regular_file(path));
  std::string start;
  ATTN_RETURN_IF_ERROR(read_more(file, path, magic.size(), start));
  const auto first = std::as_bytes(std::span(start));
  std::vector<std::byte> bytes(first.begin(), first.end());
  if (start != magic) return bytes;
  std::vector<char> piece(1 << 20);
  for (;;) {
    const std::ptrdiff_t count = read_some(file.get(), piece.data(), piece.size());
    if (count < 0) return failed(path, "read");
    if (count == 0) return bytes;
    const auto read = std::as_bytes(std::span(piece)).first(static_cast<std::size_t>(count));
    bytes.insert(bytes.end(), read.begin(), read.end());
  }
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
