#include "runtime/graph/listing.h"

#include <fmt/format.h>

namespace attn {
namespace {

bool is_row_major(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides) {
  if (dims.size() != strides.size()) return false;
  // Unsigned, so that unchecked dims wrap instead of overflowing.
  std::uint64_t expected = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (static_cast<std::uint64_t>(strides[i]) != expected) return false;
    expected *= static_cast<std::uint64_t>(dims[i]);
  }
  return true;
}

}  // namespace

std::string escaped(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string quoted(std::string_view bytes) { return '"' + escaped(bytes) + '"'; }

std::string type_text(DType dtype, std::span<const std::int64_t> dims,
                      std::span<const std::int64_t> strides) {
  std::string text = fmt::format("{}[{}]", to_string(dtype), fmt::join(dims, ","));
  if (!is_row_major(dims, strides)) text += fmt::format(" strides [{}]", fmt::join(strides, ","));
  return text;
}

}  // namespace attn
