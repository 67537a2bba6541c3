// Distinguishes the two forms of a spec's text, DSL and JSON.
#pragma once

#include <string_view>

namespace attn {

// JSON if the first character after whitespace and a byte order mark is '{', which cannot begin DSL
// text.
inline bool is_json_spec(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

}  // namespace attn
