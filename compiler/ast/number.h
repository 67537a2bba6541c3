// Numbers as they are spelled: 42, 1_000, 0x1f, 0.5, .5, 5., 1e-5.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

namespace attn::ast {

using Number = std::variant<std::int64_t, double>;

// An integer when spelled without point and exponent. Nothing when it is not a number, an integer
// does not fit 64 bits, or a real overflows.
std::optional<Number> parse_number(std::string_view text);

}  // namespace attn::ast
