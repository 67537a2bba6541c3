// A place in a spec's text.
#pragma once

#include <cstdint>

namespace attn {

// 1-based line and column; line 0 means "none". For messages only: not part of the canonical text,
// the hash or equality of what has one.
struct SourcePos {
  std::uint32_t line = 0;
  std::uint32_t column = 0;

  friend bool operator==(const SourcePos&, const SourcePos&) { return true; }
};

}  // namespace attn
