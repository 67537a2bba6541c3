// Letters as pictures, for formats without text.
#pragma once

#include <cstdint>
#include <vector>

namespace attn::pictures {

// How much of each pixel the letter covers, from 0 to 15, row-major. It lies `left` of the pen and
// `top` below the base line (above: negative), in pixels, and moves the pen by `advance`.
struct Glyph {
  int advance = 0, left = 0, top = 0, width = 0, height = 0;
  std::vector<std::uint8_t> cover;
};

// The glyph of a printable ASCII character; for any other, that of `?`. The size is 2 * kText or 2
// * kTitle.
const Glyph& glyph_of(char letter, bool is_title);

}  // namespace attn::pictures
