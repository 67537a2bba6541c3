// Colours on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attn::support {

enum class Style : std::uint8_t {
  error,
  warning,
  good,     // what went well
  help,     // notes, and what to do
  heading,  // titles, and messages
  frame,    // what surrounds text: line numbers, arrows
};

// Wraps text in the escape sequences of a style, or leaves it as it is. By default the latter.
class Paint {
 public:
  Paint() = default;
  explicit Paint(bool colours) : colours_(colours) {}

  bool colours() const { return colours_; }
  std::string operator()(Style style, std::string_view text) const;

 private:
  bool colours_ = false;
};

}  // namespace attn::support
