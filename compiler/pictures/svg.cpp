#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "compiler/pictures/drawing.h"

namespace attn::pictures {
namespace {

std::string hex(const Colour& colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue);
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      default: result += c;
    }
  }
  return result;
}

// Tiles of one ink as few rectangles: runs of a row that continue one of the row above are joined.
class Runs {
 public:
  explicit Runs(const Tiles& tiles) : tiles_(tiles) {}

  // The path of each ink, in tiles, but Ink::empty.
  std::map<Ink, std::string> paths() {
    for (std::int64_t row = 0; row < tiles_.rows; ++row) take(row);
    for (const auto& [run, top] : open_) close(run, top, tiles_.rows);
    return std::move(paths_);
  }

 private:
  struct Run {
    std::int64_t begin, end;
    Ink ink;
    auto operator<=>(const Run&) const = default;
  };

  void take(std::int64_t row) {
    std::map<Run, std::int64_t> next;
    for (std::int64_t begin = 0; begin < tiles_.columns;) {
      const Ink ink = at(row, begin);
      std::int64_t end = begin + 1;
      while (end < tiles_.columns && at(row, end) == ink) ++end;
      const Run run{begin, end, ink};
      begin = end;
      if (ink == Ink::empty) continue;
      const auto above = open_.find(run);
      next[run] = above == open_.end() ? row : above->second;
      if (above != open_.end()) open_.erase(above);
    }
    for (const auto& [run, top] : open_) close(run, top, row);
    open_ = std::move(next);
  }

  void close(const Run& run, std::int64_t top, std::int64_t bottom) {
    const std::int64_t width = run.end - run.begin;
    paths_[run.ink] += fmt::format("M{} {}h{}v{}h{}z", run.begin, top, width, bottom - top, -width);
  }

  Ink at(std::int64_t row, std::int64_t column) const {
    return tiles_.inks[static_cast<std::size_t>(row * tiles_.columns + column)];
  }

  const Tiles& tiles_;
  std::map<Run, std::int64_t> open_;  // and the row where each begins
  std::map<Ink, std::string> paths_;
};

class SvgWriter {
 public:
  explicit SvgWriter(const Drawing& drawing) : drawing_(drawing) {}

  std::string run(std::optional<Theme> theme) {
    for (const Shape& shape : drawing_.shapes) {
      std::visit([&](const auto& each) { write(each); }, shape);
    }
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" "
        "role=\"img\">\n<title>{2}</title>\n<desc>{3}</desc>\n{4}{5}</svg>\n",
        drawing_.width, drawing_.height, escaped(drawing_.title), escaped(drawing_.description),
        style(theme), body_);
  }

 private:
  std::string used(Ink ink) {
    used_[static_cast<std::size_t>(ink)] = true;
    return fmt::format("i{}", static_cast<int>(ink));
  }

  void write(const Rectangle& box) {
    body_ += fmt::format("<rect class=\"{}\" x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\"",
                         used(box.ink), box.x, box.y, box.width, box.height);
    if (box.radius > 0) body_ += fmt::format(" rx=\"{:g}\"", box.radius);
    body_ += "/>\n";
  }

  void write(const Label& label) {
    constexpr std::string_view kAnchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    body_ += fmt::format("<text class=\"{}{}\" x=\"{:g}\" y=\"{:g}\"{}>{}</text>\n",
                         used(label.ink), label.is_title ? " t" : "", label.x, label.y,
                         kAnchors[static_cast<std::size_t>(label.anchor)], escaped(label.text));
  }

  void write(const Tiles& tiles) {
    const double width = tiles.width * static_cast<double>(tiles.columns);
    const double height = tiles.height * static_cast<double>(tiles.rows);
    write(Rectangle{tiles.x, tiles.y, width, height, Ink::empty});
    body_ += fmt::format(
        "<g transform=\"translate({:g} {:g}) scale({:g} {:g})\" shape-rendering=\"crispEdges\">\n",
        tiles.x, tiles.y, tiles.width, tiles.height);
    for (const auto& [ink, path] : Runs(tiles).paths()) {
      body_ += fmt::format("<path class=\"{}\" d=\"{}\"/>\n", used(ink), path);
    }
    body_ += "</g>\n";
    if (tiles.ruled) rule(tiles, width, height);
  }

  void rule(const Tiles& tiles, double width, double height) {
    std::string path;
    for (std::int64_t row = 1; row < tiles.rows; ++row) {
      path += fmt::format("M0 {:g}h{:g}", static_cast<double>(row) * tiles.height, width);
    }
    for (std::int64_t column = 1; column < tiles.columns; ++column) {
      path += fmt::format("M{:g} 0v{:g}", static_cast<double>(column) * tiles.width, height);
    }
    used_[static_cast<std::size_t>(Ink::paper)] = true;
    body_ += fmt::format("<path class=\"r\" transform=\"translate({:g} {:g})\" d=\"{}\"/>\n",
                         tiles.x, tiles.y, path);
  }

  std::string colours(Theme theme) const {
    std::string text = fmt::format(".r{{stroke:{}}}", hex(colour_of(Ink::paper, theme)));
    for (std::size_t i = 0; i < kInks; ++i) {
      if (!used_[i]) continue;
      text += fmt::format(".i{}{{fill:{}}}", i, hex(colour_of(static_cast<Ink>(i), theme)));
    }
    return text;
  }

  std::string style(std::optional<Theme> theme) const {
    std::string text = fmt::format(
        "<style>text{{font:{:g}px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif}}"
        "text.t{{font-size:{:g}px;font-weight:600}}.r{{fill:none}}\n{}",
        kText, kTitle, colours(theme.value_or(Theme::light)));
    if (!theme) {
      text += fmt::format("\n@media (prefers-color-scheme:dark){{{}}}", colours(Theme::dark));
    }
    return text + "</style>\n";
  }

  const Drawing& drawing_;
  std::string body_;
  std::array<bool, kInks> used_{};
};

}  // namespace

std::string to_svg(const Drawing& drawing, std::optional<Theme> theme) {
  return SvgWriter(drawing).run(theme);
}

}  // namespace attn::pictures
