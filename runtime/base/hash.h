// 128-bit content hash (XXH3-128), stable between processes, builds and machines.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace attn {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  auto operator<=>(const Hash128&) const = default;

  // 32 lower-case hexadecimal digits, high half first.
  std::string to_hex() const;
};

Hash128 hash128(std::string_view bytes);

}  // namespace attn
