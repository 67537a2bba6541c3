#include "compiler/support/paint.h"

#include <fmt/color.h>

namespace attn::support {
namespace {

fmt::text_style look_of(Style style) {
  using fmt::emphasis;
  using fmt::terminal_color;
  switch (style) {
    case Style::error: return emphasis::bold | fg(terminal_color::red);
    case Style::warning: return emphasis::bold | fg(terminal_color::yellow);
    case Style::good: return fg(terminal_color::green);
    case Style::help: return emphasis::bold | fg(terminal_color::cyan);
    case Style::heading: return emphasis::bold;
    case Style::frame: return fg(terminal_color::blue);
  }
  return {};
}

}  // namespace

std::string Paint::operator()(Style style, std::string_view text) const {
  if (!colours_ || text.empty()) return std::string(text);
  return fmt::format(look_of(style), "{}", text);
}

}  // namespace attn::support
