#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/pictures/drawing.h"
#include "compiler/support/embedded.h"

namespace attn::pictures {

std::span<const support::EmbeddedFile> fonts();  // embedded_fonts.cpp

namespace {

// How much of each pixel the letter covers, from 0 to 15, row-major. It lies `left` of the pen and
// `top` below the base line (above: negative), in pixels, and moves the pen by `advance`.
struct Glyph {
  int advance = 0, left = 0, top = 0, width = 0, height = 0;
  std::vector<std::uint8_t> cover;
};

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

// The glyph of a printable ASCII character; for any other, that of `?`. The size is 2 * kText or 2
// * kTitle.
const Glyph& glyph_of(char letter, bool is_title) {
  static const Font text = read("text.txt"), title = read("title.txt");
  const bool known = kFirst <= letter && letter <= kLast;
  return (is_title ? title : text)[static_cast<std::size_t>((known ? letter : '?') - kFirst)];
}

constexpr double kScale = 2;  // pixels for each of the drawing

double pixels_along(double length) { return std::ceil(kScale * length); }

Status check_size(const Drawing& drawing) {
  const double width = pixels_along(drawing.width), height = pixels_along(drawing.height);
  if (std::max(width, height) <= kMostPixelsAlong && width * height <= kMostPixels) return {};
  const auto text = [](double number) { return grouped(static_cast<std::int64_t>(number)); };
  return Error{ErrorCode::invalid_argument,
               fmt::format("a PNG of {} x {} pixels is too large: at most {} along a side, and {} "
                           "in all",
                           text(width), text(height), text(kMostPixelsAlong), text(kMostPixels)),
               {kDrawLess}};
}

class Canvas {
 public:
  Canvas(const Drawing& drawing, Theme theme)
      : theme_(theme),
        width_(static_cast<int>(pixels_along(drawing.width))),
        height_(static_cast<int>(pixels_along(drawing.height))),
        pixels_(static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_),
                colour_of(Ink::paper, theme)) {
    for (const Shape& shape : drawing.shapes) {
      std::visit([&](const auto& each) { draw(each); }, shape);
    }
  }

  Result<std::string> encoded() const {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = static_cast<png_uint_32>(width_);
    image.height = static_cast<png_uint_32>(height_);
    image.format = PNG_FORMAT_RGB;
    static_assert(sizeof(Colour) == 3);
    std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
    png_alloc_size_t size = bytes.size();
    if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels_.data(), 0, nullptr) ==
        0) {
      return {ErrorCode::internal, image.message};
    }
    bytes.resize(size);
    return bytes;
  }

 private:
  static int pixel(double place) { return static_cast<int>(std::lround(kScale * place)); }

  void mix(int x, int y, Ink ink, double cover) {
    if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
    Colour& below = pixels_[static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) +
                            static_cast<std::size_t>(x)];
    const Colour above = colour_of(ink, theme_);
    const auto mixed = [&](std::uint8_t from, std::uint8_t to) {
      return static_cast<std::uint8_t>(std::lround(from + cover * (to - from)));
    };
    below = {mixed(below.red, above.red), mixed(below.green, above.green),
             mixed(below.blue, above.blue)};
  }

  void draw(const Rectangle& box) {
    const int left = pixel(box.x), right = pixel(box.x + box.width);
    const int top = pixel(box.y), bottom = pixel(box.y + box.height);
    const double radius = kScale * box.radius;
    for (int y = top; y < bottom; ++y) {
      for (int x = left; x < right; ++x) {
        // How far the pixel's middle is beyond the middle of the nearest corner's circle.
        const double dx = std::max({left + radius - x - 0.5, x + 0.5 - right + radius, 0.0});
        const double dy = std::max({top + radius - y - 0.5, y + 0.5 - bottom + radius, 0.0});
        const double cover = radius > 0 ? radius + 0.5 - std::hypot(dx, dy) : 1;
        mix(x, y, box.ink, std::clamp(cover, 0.0, 1.0));
      }
    }
  }

  void draw(const Tiles& tiles) {
    for (std::int64_t row = 0; row < tiles.rows; ++row) {
      for (std::int64_t column = 0; column < tiles.columns; ++column) {
        const double line = tiles.ruled ? 0.5 : 0;
        const bool first_row = row == 0, first_column = column == 0;
        Rectangle tile{tiles.x + tiles.width * static_cast<double>(column),
                       tiles.y + tiles.height * static_cast<double>(row), tiles.width, tiles.height,
                       tiles.inks[static_cast<std::size_t>(row * tiles.columns + column)]};
        draw(tile);
        if (tiles.ruled && !first_row)
          draw(Rectangle{tile.x, tile.y, tile.width, line, Ink::paper});
        if (tiles.ruled && !first_column) {
          draw(Rectangle{tile.x, tile.y, line, tile.height, Ink::paper});
        }
      }
    }
  }

  void draw(const Label& label) {
    int width = 0;
    for (const char letter : label.text) width += glyph_of(letter, label.is_title).advance;
    int pen = pixel(label.x);
    if (label.anchor == Anchor::middle) pen -= width / 2;
    if (label.anchor == Anchor::end) pen -= width;
    for (const char letter : label.text) {
      const Glyph& glyph = glyph_of(letter, label.is_title);
      draw(glyph, pen, pixel(label.y), label.ink);
      pen += glyph.advance;
    }
  }

  void draw(const Glyph& glyph, int pen, int base, Ink ink) {
    for (int y = 0; y < glyph.height; ++y) {
      for (int x = 0; x < glyph.width; ++x) {
        const double cover = glyph.cover[static_cast<std::size_t>(y * glyph.width + x)] / 15.0;
        mix(pen + glyph.left + x, base + glyph.top + y, ink, cover);
      }
    }
  }

  Theme theme_;
  int width_, height_;
  std::vector<Colour> pixels_;
};

}  // namespace

Result<std::string> to_png(const Drawing& drawing, Theme theme) {
  ATTN_RETURN_IF_ERROR(check_size(drawing));
  return Canvas(drawing, theme).encoded();
}

}  // namespace attn::pictures
