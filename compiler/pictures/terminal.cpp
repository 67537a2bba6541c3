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
// Characters that stand for owners.
constexpr std::string_view kSymbols =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@#";
constexpr std::size_t kDigits = 10;
constexpr std::int64_t kMostLines = 128;  // of cells
constexpr char kOther = '?';

// The colours of dark paper, as most terminals have it; they are legible on light paper too.
std::string code(Ink ink, bool foreground) {
  const Colour colour = colour_of(ink, Theme::dark);
  return fmt::format("\033[{};2;{};{};{}m", foreground ? 38 : 48, colour.red, colour.green,
                     colour.blue);
}

bool is_shown(Ink ink) { return ink != Ink::empty && ink != Ink::paper && !is_in_vain(ink); }

std::string whole(Ink ink) {
  if (ink == Ink::empty) return "\u00b7 ";
  if (is_in_vain(ink)) return "\u2591\u2591";
  return ink == Ink::partial ? "\u2592\u2592" : "\u2588\u2588";
}

Ink legible(Ink ink) { return ink == Ink::empty ? Ink::faint : ink; }

char of(std::size_t owner) { return owner < kSymbols.size() ? kSymbols[owner] : kOther; }

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
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
    return !has_symbols() && (colour_ || panel.cells.are_scores());
  }
  // Whether owners need symbols: without colours, or with too few.
  bool has_symbols() const {
    return !picture_.division.empty() && (!colour_ || has_numbers(picture_));
  }

  void write(const Panel& panel) {
    const std::string title = title_of(picture_, panel), blocks = blocks_text(panel.cells);
    text_ += fmt::format("\n{:>{}}{}{}{}{}{}\n", "", kGutter, title, title.empty() ? "" : ": ",
                         caption_of(picture_, panel), blocks.empty() ? "" : ", ", blocks);
    const std::vector<Ink> inks = inks_of(picture_, panel);
    const masks::BlockMap& map = panel.cells.map;
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
        line += has_symbols() ? symbol(panel.computed->cells[at], upper)
                : step == 1   ? whole(upper)
                              : halves(upper, lower);
      }
      if (colour_) line += kPlain;
      last_upper_ = last_lower_ = kNone;
      text_ += trimmed(line) + "\n";
    }
  }

  // The first column of every eighth cell.
  void columns(const masks::BlockMap& map, std::int64_t characters) {
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

  std::string symbol(const ByKernel& by, Ink ink) {
    const std::string text = by.kernel == ByKernel::kNone      ? " \u00b7"
                             : by.kernel == ByKernel::kSeveral ? " +"
                                                               : fmt::format(" {}", of(by.kernel));
    if (!colour_ || ink == last_upper_) return text;
    last_upper_ = ink;
    return code(legible(ink), true) + text;
  }

  // Parts, which take many words, have a line each.
  void legend() {
    const std::string indent(static_cast<std::size_t>(kGutter), ' ');
    if (has_letters()) {
      text_ += legend_of_letters(indent);
      return;
    }
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

  // Whether some of the symbols are no numbers.
  bool has_letters() const { return has_symbols() && picture_.kernels.size() > kDigits; }

  // The legend in as many columns as the panels are wide, each read downwards.
  std::string legend_of_letters(const std::string& indent) const {
    constexpr std::size_t kApart = 3, kSign = 2;
    const std::vector<Meaning> all = legend_of(picture_);
    std::size_t widest = 0;
    for (const Meaning& meaning : all) widest = std::max(widest, meaning.words.size());
    const auto room = 2 * static_cast<std::size_t>(picture_.panels.front().cells.map.width);
    const std::size_t columns =
        std::max<std::size_t>(1, (room + kApart) / (kSign + widest + kApart));
    const std::size_t lines = (all.size() + columns - 1) / columns;
    std::string text;
    for (std::size_t line = 0; line < lines; ++line) {
      std::string entries;
      for (std::size_t i = line; i < all.size(); i += lines) {
        const Ink ink = all[i].inks.front();
        const std::string sign = all[i].owner ? std::string(1, of(*all[i].owner)) : swatch(ink);
        entries += colour_ ? code(legible(ink), true) + sign + kPlain : sign;
        entries += fmt::format(" {:<{}}", all[i].words, widest + kApart);
      }
      text += "\n" + indent + trimmed(entries);
    }
    return text + "\n";
  }

  std::string swatch(Ink ink) const {
    if (has_symbols() && ink != Ink::empty) return ink == Ink::several ? "+" : "";
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
  const bool symbols = !options.owners.empty() && (!colour || options.owners.size() > kParts);
  options.blocks = colour && !symbols ? options.scores : options.scores / 2;
  if (!options.owners.empty()) options.scores = options.blocks;
  options.blocks_of_several = options.blocks;
  options.smallest = 2;
  options.rows_of_owners = kMostLines;
  return options;
}

std::string to_terminal(const Picture& picture, bool colour) {
  return TextWriter(picture, colour).run();
}

}  // namespace attn::pictures
