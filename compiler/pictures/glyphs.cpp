#include "compiler/pictures/glyphs.h"

#include <array>
#include <sstream>
#include <string>

#include "compiler/support/embedded.h"

namespace attn::pictures {

std::span<const support::EmbeddedFile> fonts();  // embedded_fonts.cpp

namespace {

constexpr char kFirst = ' ', kLast = '~';
using Font = std::array<Glyph, kLast - kFirst + 1>;

int digit_of(char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; }

// A line for each letter: advance, left, top, width, height, and a hexadecimal digit a pixel.
Font read(std::string_view name) {
  std::istringstream text{std::string(support::text_of(fonts(), name))};
  Font font;
  for (Glyph& glyph : font) {
    std::string pixels;
    text >> glyph.advance >> glyph.left >> glyph.top >> glyph.width >> glyph.height;
    if (glyph.width > 0) text >> pixels;
    for (const char pixel : pixels) {
      glyph.cover.push_back(static_cast<std::uint8_t>(digit_of(pixel)));
    }
  }
  return font;
}

}  // namespace

const Glyph& glyph_of(char letter, bool is_title) {
  static const Font text = read("text.txt"), title = read("title.txt");
  const bool known = kFirst <= letter && letter <= kLast;
  return (is_title ? title : text)[static_cast<std::size_t>((known ? letter : '?') - kFirst)];
}

}  // namespace attn::pictures
