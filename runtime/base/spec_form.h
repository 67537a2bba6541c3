// The one place that tells the two forms of a spec's text apart.
#pragma once

#include <string_view>

namespace attn {

// JSON, when the first character after blanks and a byte order mark is a '{', which no DSL text
// begins with; else DSL.
inline bool is_json_spec(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

}  // namespace attn
