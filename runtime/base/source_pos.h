// A position in the text of a spec.
#pragma once

#include <cstdint>

namespace attn {

// 1-based line and column; line 0 means "none". Used only in messages: it is not part of canonical
// text, hashes or equality.
struct SourcePos {
  std::uint32_t line = 0;
  std::uint32_t column = 0;

  friend bool operator==(const SourcePos&, const SourcePos&) { return true; }
};

}  // namespace attn
