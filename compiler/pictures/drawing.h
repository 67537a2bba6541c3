// A picture laid out: shapes at places, in pixels, x to the right and y down; written as SVG or
// PNG.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "compiler/pictures/colours.h"
#include "compiler/pictures/picture.h"
#include "runtime/base/status.h"

namespace attn::pictures {

struct Rectangle {
  double x = 0, y = 0, width = 0, height = 0;
  Ink ink = Ink::edge;
  double radius = 0;  // of its corners
};

enum class Anchor : std::uint8_t { start, middle, end };

struct Label {
  double x = 0, y = 0;  // of the anchor, on the base line
  std::string text;     // ASCII
  Ink ink = Ink::text;
  Anchor anchor = Anchor::start;
  bool is_title = false;  // kTitle high and bold, otherwise kText high
};
inline constexpr double kText = 12;
inline constexpr double kTitle = 17;

// Rows of tiles without gaps; ruled ones are told apart by thin lines.
struct Tiles {
  double x = 0, y = 0;
  double width = 0, height = 0;  // of a tile; multiples of a half
  std::int64_t rows = 0, columns = 0;
  std::vector<Ink> inks;  // row-major
  bool ruled = false;
};

using Shape = std::variant<Rectangle, Label, Tiles>;

struct Drawing {
  double width = 0, height = 0;
  std::string title, description;  // for those who cannot see it
  std::vector<Shape> shapes;       // the first ones below
};

Drawing drawing_of(const Picture& picture);

// Whether more owners than colours compute it, so that numbers tell them apart.
bool has_numbers(const Picture& picture);

// The ink of each cell of a panel, row-major.
std::vector<Ink> inks_of(const Picture& picture, const Panel& panel);

// "37.5 % of scores; 38.3 % are computed", without what the picture does not show.
std::string caption_of(const Picture& picture, const Panel& panel);
// "33,558,528 of 67,108,864 scores are visible", of each panel.
std::string description_of(const Picture& picture);

// What inks mean, as one line of swatches and words.
struct Meaning {
  std::vector<Ink> inks;
  std::string words;
  std::optional<std::size_t> owner{};  // or kernel: its number
};
std::vector<Meaning> legend_of(const Picture& picture);

// "32 rows x 32 columns", and how many places are left out.
std::string subtitle_of(const Picture& picture);

// As SVG. Without a theme, the colours follow the reader's choice of light or dark.
std::string to_svg(const Drawing& drawing, std::optional<Theme> theme);

inline constexpr double kMostPixelsAlong = 1e6;  // libpng's limit
inline constexpr double kMostPixels = 0x1p27;    // of 3 bytes, held in memory

// As PNG: the bytes of a file, at two pixels for each of the drawing. Errors: invalid_argument, if
// there would be more pixels than that; internal, with libpng's text.
Result<std::string> to_png(const Drawing& drawing, Theme theme);

}  // namespace attn::pictures
