// Number literals: 42, 1_000, 0x1f, 0.5, .5, 5., 1e-5.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

namespace attn::ast {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

using Number = std::variant<std::int64_t, double>;

// Returns an integer if the literal has no point and no exponent, else a real. Returns nullopt if
// it is not a number, if an integer does not fit in 64 bits, or if a real overflows. `negated`: the
// value of a literal behind a minus, which may be -2^63.
std::optional<Number> parse_number(std::string_view text, bool negated = false);

}  // namespace attn::ast
