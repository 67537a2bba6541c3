// Integer division as the language defines it.
#pragma once

#include <cstdint>

namespace attn::masks {

// floor(x / y); y is not 0.
inline std::int64_t floor_div(std::int64_t x, std::int64_t y) {
  const std::int64_t quotient = x / y;
  return (x % y != 0 && (x < 0) != (y < 0)) ? quotient - 1 : quotient;
}

}  // namespace attn::masks
