#include "compiler/ast/number.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace attn::ast {
namespace {

bool is_hexadecimal(std::string_view text) {
  return text.starts_with("0x") || text.starts_with("0X");
}

// Removes underscores; nullopt if one is not between two digits.
std::optional<std::string> without_underscores(std::string_view text) {
  const auto is_digit_here = [hexadecimal = is_hexadecimal(text)](char c) {
    return is_digit(c) || (hexadecimal && c != '_' && c != 'x' && c != 'X');
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between =
        i > 0 && i + 1 < text.size() && is_digit_here(text[i - 1]) && is_digit_here(text[i + 1]);
    if (text[i] != '_') out.push_back(text[i]);
    if (text[i] == '_' && !between) return std::nullopt;
  }
  return out;
}

template <typename T, typename... Format>
std::optional<Number> convert(std::string_view text, Format... format) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, format...);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Number> parse_number(std::string_view spelling, bool negated) {
  const std::optional<std::string> text = without_underscores(spelling);
  if (!text || text->empty() || !(is_digit((*text)[0]) || (*text)[0] == '.')) return std::nullopt;
  const std::string sign = negated ? "-" : "";
  if (is_hexadecimal(*text)) {
    const std::string digits = text->substr(2);
    if (digits.starts_with('-')) return std::nullopt;
    return convert<std::int64_t>(sign + digits, 16);
  }
  if (std::ranges::all_of(*text, is_digit)) return convert<std::int64_t>(sign + *text);
  return convert<double>(sign + *text, std::chars_format::general);
}

}  // namespace attn::ast
