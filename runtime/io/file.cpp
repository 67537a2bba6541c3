#include "runtime/io/file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/regular_file.h"
#include "runtime/base/replace_file.h"

namespace attn::io {
namespace {

Error not_read(const std::string& path) {
  return {ErrorCode::io, fmt::format("{} cannot be read: {}", path, std::strerror(errno))};
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
    if (count < 0) return not_read(path);
    if (count == 0) return bytes;
    const auto read = std::as_bytes(std::span(piece)).first(static_cast<std::size_t>(count));
    bytes.insert(bytes.end(), read.begin(), read.end());
  }
}

Status write_file(const std::string& path, std::span<const std::byte> bytes) {
  return replace_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace attn::io
