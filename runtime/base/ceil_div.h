#pragma once

#include <cstdint>

namespace attn {

// The quotient, rounded up. x is not negative, y is positive, and x + y fits.
constexpr std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }

}  // namespace attn
