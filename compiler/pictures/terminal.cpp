#include "compiler/pictures/terminal.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/pictures/drawing.h"

namespace attn::pictures {
namespace {

constexpr std::int64_t kGutter = 9;  // for the numbers of rows
constexpr const char* kUpper = "\u2580";
constexpr const char* kLower = "\u2584";
constexpr const char* kBoth = "\u2588";
constexpr const char* kPlain = "\033[0m";

// The colours of dark paper, as most terminals have it; they are legible on light paper too.
std::string code(Ink ink, bool foreground) {
  const Colour colour = colour_of(ink, Theme::dark);
  return fmt::format("\033[{};2;{};{};{}m", foreground ? 38 : 48, colour.red, colour.green,
                     colour.blue);
}

class TextWriter {
 public:
  TextWriter(const Picture& picture, bool colour) : picture_(picture), colour_(colour) {}

  std::string run() {
    text_ = fmt::format("{}: {}\n", picture_.name, subtitle_of(picture_));
    if (!picture_.kernels.empty()) text_ += lowering_text(picture_) + "\n";
    for (const Panel& panel : picture_.panels) write(panel);
    legend();
    return std::move(text_);
  }

 private:
  bool are_halves(const Panel& panel) const {
    return colour_ || (panel.cells.are_scores() && picture_.division.empty());
  }
  // Without colours, owners have numbers.
  bool has_numbers() const { return !colour_ && !picture_.division.empty(); }

  void write(const Panel& panel) {
    const std::string title = title_of(picture_, panel), blocks = blocks_text(panel.cells);
    text_ += fmt::format("\n{:>{}}{}{}{}{}{}\n", "", kGutter, title, title.empty() ? "" : ": ",
                         caption_of(picture_, panel), blocks.empty() ? "" : ", ", blocks);
    const std::vector<Ink> inks = inks_of(picture_, panel);
    const passes::BlockMap& map = panel.cells.map;
    const std::int64_t step = are_halves(panel) ? 2 : 1;
    columns(map, are_halves(panel) ? 1 : 2);
    for (std::int64_t row = 0; row < map.height; row += step) {
      const bool numbered = row % (4 * step) == 0;
      std::string line =
          fmt::format("{:>{}} ", numbered ? grouped(row * map.rows) : "", kGutter - 1);
      for (std::int64_t column = 0; column < map.width; ++column) {
        const Ink upper = inks[static_cast<std::size_t>(row * map.width + column)];
        const bool has_lower = row + 1 < map.height;
        const Ink lower =
            has_lower ? inks[static_cast<std::size_t>((row + 1) * map.width + column)] : Ink::paper;
        const auto at = static_cast<std::size_t>(row * map.width + column);
        line += has_numbers() ? number(panel.computed->cells[at])
                : step == 1   ? whole(upper)
                              : halves(upper, lower);
      }
      if (colour_) line += kPlain;
      last_upper_ = last_lower_ = kNone;
      text_ += trimmed(line) + "\n";
    }
  }

  // The first column of every eighth cell.
  void columns(const passes::BlockMap& map, std::int64_t characters) {
    std::string line = fmt::format("{:>{}} ", picture_.row_name, kGutter - 1);
    for (std::int64_t column = 0; column < map.width; column += 8) {
      const std::string number = grouped(column * map.columns);
      const std::int64_t at = kGutter + column * characters;
      if (static_cast<std::int64_t>(line.size()) > at) continue;
      line.resize(static_cast<std::size_t>(at), ' ');
      line += number + " ";
    }
    text_ += trimmed(line + " kv_idx") + "\n";
  }

  std::string halves(Ink upper, Ink lower) {
    if (!colour_) {
      const bool above = is_shown(upper), below = is_shown(lower);
      if (above && below) return kBoth;
      return above ? kUpper : below ? kLower : "\u00b7";
    }
    std::string text;
    if (upper != last_upper_) text += code(upper, true);
    if (lower != last_lower_) text += lower == Ink::paper ? "\033[49m" : code(lower, false);
    last_upper_ = upper;
    last_lower_ = lower;
    return text + kUpper;
  }

  static bool is_shown(Ink ink) {
    return ink != Ink::empty && ink != Ink::paper && !is_in_vain(ink);
  }

  static std::string whole(Ink ink) {
    if (ink == Ink::empty) return "\u00b7 ";
    if (is_in_vain(ink)) return "\u2591\u2591";
    return ink == Ink::partial ? "\u2592\u2592" : "\u2588\u2588";
  }

  static std::string number(const ByKernel& by) {
    if (by.kernel == ByKernel::kNone) return " \u00b7";
    if (by.kernel == ByKernel::kSeveral) return " +";
    return fmt::format("{:>2}", by.kernel);
  }

  static std::string trimmed(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  }

  // Parts, which take many words, have a line each.
  void legend() {
    const std::string indent(static_cast<std::size_t>(kGutter), ' ');
    const bool has_parts = picture_.kernels.size() > 1 || !picture_.division.empty();
    std::string line;
    for (const Meaning& meaning : legend_of(picture_)) {
      if (has_parts || line.empty()) line += "\n" + indent;
      for (const Ink ink : meaning.inks) {
        line += colour_                          ? code(ink, true) + kBoth + kPlain
                : meaning.inks.size() < kChanges ? swatch(ink)
                                                 : "";
      }
      if (!line.ends_with(' ') && !line.ends_with('\n')) line += ' ';
      line += meaning.words;
      if (!has_parts) line += "   ";
    }
    text_ += trimmed(line) + "\n";
  }

  std::string swatch(Ink ink) const {
    if (has_numbers() && ink != Ink::empty) return ink == Ink::several ? "+" : "";
    if (is_in_vain(ink)) return "\u2591";
    return ink == Ink::empty ? "\u00b7" : ink == Ink::partial ? "\u2592" : kBoth;
  }

  static constexpr Ink kNone = static_cast<Ink>(kInks);
  const Picture& picture_;
  bool colour_;
  std::string text_;
  Ink last_upper_ = kNone, last_lower_ = kNone;
};

}  // namespace

Options for_terminal(Options options, std::int64_t columns, bool colour) {
  options.scores = std::clamp<std::int64_t>(columns - kGutter - 1, 16, 128);
  options.blocks = colour ? options.scores : options.scores / 2;
  if (!options.division.empty()) options.scores = options.blocks;
  options.blocks_of_several = options.blocks;
  options.smallest = 2;
  return options;
}

std::string to_terminal(const Picture& picture, bool colour) {
  return TextWriter(picture, colour).run();
}

}  // namespace attn::pictures
