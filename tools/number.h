// Numbers in the text of options.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace attn::tools {

// nullopt if `text` is anything else, or out of range.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace attn::tools
