#include "compiler/pictures/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace attn::pictures {
namespace {

constexpr double kMargin = 24;
constexpr double kLine = 18;        // between base lines
constexpr double kOne = 480;        // longest side of a panel that is alone
constexpr double kSeveral = 220;    // and of one of several
constexpr std::size_t kAcross = 3;  // panels beside one another
constexpr double kGap = 28;         // between panels
constexpr double kSwatch = 12;
constexpr double kLegend = 10;             // above the legend
constexpr double kRuled = 7;               // tiles from this size on are told apart
constexpr int kTicks = 5;                  // at most, and a first one
constexpr double kNumber = 0.75 * kText;   // the height of digits
constexpr double kLeastField = kText / 3;  // of cells that a number may be higher than

// Wide enough for most fonts.
double width_of(const std::string& text) { return 0.58 * kText * static_cast<double>(text.size()); }

// The step of round numbers that gives few ticks, with `apart` pixels for each of them.
std::int64_t tick_step(std::int64_t size, double pixels, double apart) {
  const auto most = std::clamp<std::int64_t>(static_cast<std::int64_t>(pixels / apart), 1, kTicks);
  const bool is_power = (size & (size - 1)) == 0;
  if (is_power && size >= 8 && most >= 4) return size / 4;
  for (std::int64_t ten = 1;; ten *= 10) {
    for (const std::int64_t digit : {1, 2, 5}) {
      if ((size - 1) / (ten * digit) < most) return ten * digit;
    }
  }
}

// A whole number of half pixels, so that cells are equally large, also at twice the size.
double tile_size(std::int64_t cells, double longest) {
  return std::max(0.5, std::round(2 * longest / static_cast<double>(cells)) / 2);
}

// The labels of tiles: numbers inside, which do not cover each other.
class TileLabels {
 public:
  explicit TileLabels(const Picture& picture) : picture_(picture) {
    const masks::BlockMap& map = picture.panels.front().cells.map;
    const double longest = picture.panels.size() == 1 ? kOne : kSeveral;
    const std::int64_t most = std::max(map.height, map.width);
    tile_width_ = tile_height_ = tile_size(most, longest);
    // A few rows or columns are drawn taller or wider than they are.
    tile_height_ = std::max(tile_height_, tile_size(map.height, 24));
    tile_width_ = std::max(tile_width_, tile_size(map.width, 24));
    panel_width_ = tile_width_ * static_cast<double>(map.width);
    panel_height_ = tile_height_ * static_cast<double>(map.height);
    const std::int64_t last = (picture.rows - 1) / row_step() * row_step();
    gutter_ = 12 + std::max(width_of(grouped(last)), width_of(picture.row_name));
  }

 protected:
  struct Taken {
    double x, y, width;
  };

  // Adjacent rows of an owner, with the columns of the middle one.
  struct Field {
    double x = 0, y = 0;  // the middle
    double width = 0, height = 0;
    bool operator==(const Field&) const = default;
  };

  std::int64_t row_step() const { return tick_step(picture_.rows, panel_height_, 20); }
  std::int64_t column_step() const { return tick_step(picture_.columns, panel_width_, 44); }

  void label(double x, double y, std::string text, Ink ink, Anchor anchor = Anchor::start,
             bool is_title = false) {
    const double width = width_of(text) * (is_title ? kTitle / kText : 1);
    if (anchor == Anchor::start) widest_ = std::max(widest_, x + width + kMargin);
    drawing_.shapes.push_back(Label{x, y, std::move(text), ink, anchor, is_title});
  }

  // Writes the number of each owner wherever it has room; then of owners that have none yet; then
  // on lower fields, too.
  void numbers(const Panel& panel, double left, double top) {
    taken_.clear();
    using Numbered = std::pair<std::size_t, Field>;
    std::vector<Numbered> without, low;
    for (std::size_t owner = 0; owner < picture_.kernels.size(); ++owner) {
      Field widest;
      bool any = false;
      for (const Field& field : fields(panel, owner, left, top)) {
        if (field.width > widest.width) widest = field;
        if (!is_wide(owner, field)) continue;
        if (field.height < kNumber)
          low.emplace_back(owner, field);
        else
          number(owner, field.x, field.y), any = true;
      }
      if (any) continue;
      std::erase(low, Numbered(owner, widest));
      without.emplace_back(owner, widest);
    }
    for (const auto& [owner, widest] : without) squeeze(owner, widest);
    for (const auto& [owner, field] : low) squeeze(owner, field);
  }

  std::vector<Field> fields(const Panel& panel, std::size_t owner, double left, double top) const {
    std::vector<Field> all;
    std::int64_t begin = 0;
    for (std::int64_t row = 0; row <= panel.cells.map.height; ++row) {
      if (row < panel.cells.map.height && longest_run(panel, row, owner).size() > 0) continue;
      if (begin < row) {
        const ranks::Interval run = longest_run(panel, (begin + row) / 2, owner);
        all.push_back({left + tile_width_ * static_cast<double>(run.begin + run.end) / 2,
                       top + tile_height_ * static_cast<double>(begin + row) / 2,
                       tile_width_ * static_cast<double>(run.size()),
                       tile_height_ * static_cast<double>(row - begin)});
      }
      begin = row + 1;
    }
    return all;
  }

  static bool is_wide(std::size_t owner, const Field& field) {
    return field.width >= width_of(std::to_string(owner)) + 2;
  }

  // Writes a number on the middle of the field or beside that, where it covers no other number; it
  // may be larger than the field.
  void squeeze(std::size_t owner, const Field& field) {
    if (field.height < kLeastField) return;
    const double width = width_of(std::to_string(owner));
    const double most = std::max(0.0, (field.width - width) / 2);
    for (double shift = 0; shift <= most; shift += width + 2) {
      for (const double x : {field.x - shift, field.x + shift}) {
        if (!covers_another(x, field.y, width)) return number(owner, x, field.y);
      }
    }
  }

  bool covers_another(double x, double y, double width) const {
    return std::ranges::any_of(taken_, [&](const Taken& other) {
      return std::abs(x - other.x) < (width + other.width) / 2 && std::abs(y - other.y) < kNumber;
    });
  }

  void number(std::size_t owner, double x, double y) {
    std::string text = std::to_string(owner);
    taken_.push_back({x, y, width_of(text)});
    label(x, y + kText / 3, std::move(text), kOnPart, Anchor::middle);
  }

  // Adjacent cells of the owner; empty if it has none.
  static ranks::Interval longest_run(const Panel& panel, std::int64_t row, std::size_t owner) {
    const std::int64_t width = panel.cells.map.width;
    ranks::Interval longest, run;
    for (std::int64_t column = 0; column < width; ++column) {
      if (panel.computed->cells[static_cast<std::size_t>(row * width + column)].kernel != owner) {
        run = {column + 1, column + 1};
        continue;
      }
      run.end = column + 1;
      if (run.size() > longest.size()) longest = run;
    }
    return longest;
  }

  const Picture& picture_;
  Drawing drawing_;
  double tile_width_ = 0, tile_height_ = 0;
  double panel_width_ = 0, panel_height_ = 0;
  double gutter_ = 0;         // beside a panel, for the numbers of its rows
  std::vector<Taken> taken_;  // by the numbers of a panel
  double widest_ = 0;
};

class Layout : private TileLabels {
 public:
  using TileLabels::TileLabels;

  Drawing run() {
    const std::size_t count = picture_.panels.size();
    const std::size_t across = std::min(count, kAcross);
    const double column = std::max(gutter_ + panel_width_, caption_width()) + kGap;
    header();
    const double top = y_;
    for (std::size_t i = 0; i < count; ++i) {
      const auto place = static_cast<double>(i % across);
      panel(picture_.panels[i], kMargin + column * place, top_of(top, i / across));
    }
    y_ = top_of(top, (count + across - 1) / across);
    legend();
    drawing_.width = std::ceil(std::max(
        {widest_, kMargin + column * static_cast<double>(across) - kGap + kMargin, 320.0}));
    drawing_.height = std::ceil(y_ + kMargin);
    frame();
    return std::move(drawing_);
  }

 private:
  double top_of(double top, std::size_t row) const {
    return top + static_cast<double>(row) * (panel_height_ + above() + below());
  }
  bool has_titles() const { return picture_.by_batch || picture_.by_head; }
  double above() const { return (has_titles() ? kLine + 8 : 0) + 2 * kLine; }
  std::size_t caption_lines() const { return are_scores() ? 1 : 2; }
  double below() const { return kLine * static_cast<double>(caption_lines()) + 20; }
  bool are_scores() const { return picture_.panels.front().cells.are_scores(); }

  double caption_width() const {
    double width = 0;
    for (const Panel& panel : picture_.panels) {
      width = std::max(width, gutter_ + width_of(caption_of(picture_, panel)));
      width = std::max(width, gutter_ + width_of(blocks_text(panel.cells)));
      width = std::max(width, gutter_ + width_of(title_of(picture_, panel)));
    }
    return width;
  }

  void header() {
    drawing_.title = picture_.name + ": " + share_text(picture_.panels.front().cells.share);
    drawing_.description = description_of(picture_);
    y_ = kMargin + 14;
    label(kMargin, y_, picture_.name, Ink::text, Anchor::start, true);
    y_ += kLine + 3;
    label(kMargin, y_, subtitle_of(picture_), Ink::faint);
    if (!picture_.kernels.empty()) {
      y_ += kLine;
      label(kMargin, y_, lowering_text(picture_), Ink::faint);
    }
    y_ += 14;
  }

  void panel(const Panel& panel, double x, double y) {
    const double left = x + gutter_;
    if (has_titles()) {
      label(left, y + kLine, title_of(picture_, panel), Ink::text);
      y += kLine + 8;
    }
    y += 2 * kLine;
    label(left, y - kLine - 6, "kv_idx", Ink::faint);
    label(left - 8, y - kLine - 6, picture_.row_name, Ink::faint, Anchor::end);
    column_ticks(panel.cells.map, left, y);
    row_ticks(panel.cells.map, left, y);
    const masks::BlockMap& map = panel.cells.map;
    const bool ruled = std::min(tile_width_, tile_height_) >= kRuled;
    drawing_.shapes.push_back(Tiles{left, y, tile_width_, tile_height_, map.height, map.width,
                                    inks_of(picture_, panel), ruled});
    if (has_numbers(picture_)) numbers(panel, left, y);
    y += panel_height_ + kLine + 2;
    label(left, y, caption_of(picture_, panel), Ink::text);
    if (!are_scores()) label(left, y + kLine, blocks_text(panel.cells), Ink::faint);
  }

  // The middle of a score, the beginning of one in a block.
  static double offset(std::int64_t index, std::int64_t cell, double tile) {
    const double middle = cell == 1 ? 0.5 : 0;
    return tile * (static_cast<double>(index) / static_cast<double>(cell) + middle);
  }

  void column_ticks(const masks::BlockMap& map, double left, double top) {
    const std::int64_t step = column_step();
    for (std::int64_t index = 0; index < picture_.columns; index += step) {
      const double x = left + offset(index, map.columns, tile_width_);
      drawing_.shapes.push_back(Rectangle{x - 0.5, top - 5, 1, 4, Ink::faint});
      label(x, top - 8, grouped(index), Ink::faint, Anchor::middle);
    }
  }

  void row_ticks(const masks::BlockMap& map, double left, double top) {
    const std::int64_t step = row_step();
    for (std::int64_t index = 0; index < picture_.rows; index += step) {
      const double y = top + offset(index, map.rows, tile_height_);
      drawing_.shapes.push_back(Rectangle{left - 5, y - 0.5, 4, 1, Ink::faint});
      // The first one has its place below the name of the axis.
      const double base = std::max(y + 4, top + 10);
      label(left - 8, base, grouped(index), Ink::faint, Anchor::end);
    }
  }

  // Draws the legend on lines that are at most as wide as the panels, or in columns.
  void legend() {
    const double left = kMargin + gutter_;
    const std::vector<Meaning> meanings = legend_of(picture_);
    double x = left, least = 0;
    if (has_numbers(picture_)) {
      for (const Meaning& meaning : meanings)
        least = std::max(least, kSwatch + 6 + width_of(meaning.words));
    }
    y_ += kLegend;
    for (const Meaning& meaning : meanings) {
      const double swatches = kSwatch * static_cast<double>(meaning.inks.size());
      const double width = std::max(least, swatches + 6 + width_of(meaning.words));
      if (x > left && x + width > std::max(widest_ - kMargin, left + panel_width_)) {
        x = left;
        y_ += kLine + 2;
      }
      for (const Ink ink : meaning.inks) {
        const double radius = meaning.inks.size() == 1 ? 2 : 0;
        drawing_.shapes.push_back(Rectangle{x, y_ - kSwatch + 2, kSwatch, kSwatch, ink, radius});
        x += kSwatch;
      }
      label(x + 6, y_, meaning.words, Ink::text);
      x += width - swatches + 18;
    }
  }

  void frame() {
    const double width = drawing_.width, height = drawing_.height;
    const Shape both[] = {Rectangle{0, 0, width, height, Ink::edge, 10},
                          Rectangle{1, 1, width - 2, height - 2, Ink::paper, 9}};
    drawing_.shapes.insert(drawing_.shapes.begin(), std::begin(both), std::end(both));
  }

  double y_ = 0;
};

Ink ink_of(masks::Block block) {
  switch (block) {
    case masks::Block::empty: return Ink::empty;
    case masks::Block::full: return Ink::full;
    case masks::Block::partial: break;
  }
  return Ink::partial;
}

// Whether the picture has parts; else one kernel computes everything.
bool has_parts(const Picture& picture) {
  return picture.kernels.size() > 1 || !picture.division.empty();
}

Ink ink_of_computed(const Picture& picture, const ByKernel& by, masks::Block block) {
  const bool in_vain = block == masks::Block::empty;
  if (by.kernel == ByKernel::kNone) return Ink::empty;
  if (by.kernel == ByKernel::kSeveral) return Ink::several;
  if (has_parts(picture)) return in_vain ? tint_of_part(by.kernel) : part_ink(by.kernel);
  if (in_vain) return Ink::in_vain;
  return by.masked ? Ink::partial : Ink::full;
}

// Meanings of the inks that the picture has.
std::vector<Meaning> legend_of_kernels(const Picture& picture) {
  std::set<Ink> used;
  std::set<std::size_t> drawn;
  for (const Panel& panel : picture.panels) {
    const std::vector<Ink> inks = inks_of(picture, panel);
    used.insert(inks.begin(), inks.end());
    for (std::size_t i = 0; i < inks.size(); ++i) {
      if (panel.cells.map.blocks[i] != masks::Block::empty)
        drawn.insert(panel.computed->cells[i].kernel);
    }
  }
  std::vector<Meaning> all;
  Meaning in_vain{{}, "computed, but hidden"};
  if (!has_parts(picture)) {
    all = {{{Ink::full}, "computed without a mask"}, {{Ink::partial}, "computed with the mask"}};
    in_vain.inks = {Ink::in_vain};
  } else {
    for (std::size_t i = 0; i < picture.kernels.size(); ++i) {
      all.push_back({{part_ink(i)}, picture.kernels[i], i});
      if (i < kParts && used.contains(tint_of_part(i))) in_vain.inks.push_back(tint_of_part(i));
    }
    all.push_back({{Ink::several}, "several of these"});
  }
  all.push_back(std::move(in_vain));
  all.push_back({{Ink::empty}, picture.division.empty() ? "skipped" : "hidden"});
  // Inks of parts repeat.
  std::erase_if(all, [&](const Meaning& meaning) {
    if (meaning.owner) return !drawn.contains(*meaning.owner);
    return meaning.inks.empty() || !used.contains(meaning.inks.front());
  });
  return all;
}

Ink ink_of_change(const Picture& picture, double change) {
  if (std::isnan(change)) return Ink::not_a_number;
  if (std::isinf(change)) return change_ink(change < 0 ? 0 : kChanges - 1);
  if (picture.least == picture.most) return change_ink(kChanges / 2);
  // Halves, because the difference of two numbers may be infinite.
  const double place =
      (change / 2 - picture.least / 2) / (picture.most / 2 - picture.least / 2) * (kChanges - 1);
  return change_ink(static_cast<std::size_t>(std::lround(place)));
}

}  // namespace

Drawing drawing_of(const Picture& picture) { return Layout(picture).run(); }

bool has_numbers(const Picture& picture) {
  return !picture.division.empty() && picture.kernels.size() > kParts;
}

std::vector<Ink> inks_of(const Picture& picture, const Panel& panel) {
  const std::vector<masks::Block>& blocks = panel.cells.map.blocks;
  std::vector<Ink> inks(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    inks[i] = panel.computed ? ink_of_computed(picture, panel.computed->cells[i], blocks[i])
                             : ink_of(blocks[i]);
    if (blocks[i] == masks::Block::empty) continue;
    if (!panel.changes.empty()) inks[i] = ink_of_change(picture, panel.changes[i]);
  }
  return inks;
}

std::vector<Meaning> legend_of(const Picture& picture) {
  if (!picture.kernels.empty()) return legend_of_kernels(picture);
  std::vector<Meaning> legend;
  const bool are_scores = picture.panels.front().cells.are_scores();
  if (picture.score) {
    Meaning scale{{},
                  fmt::format("change of a score of {:g}: {:.4g} to {:.4g}", *picture.score,
                              picture.least, picture.most)};
    for (std::size_t step = 0; step < kChanges; ++step) scale.inks.push_back(change_ink(step));
    legend.push_back(std::move(scale));
    if (picture.has_nan) legend.push_back({{Ink::not_a_number}, "not a number"});
  } else if (are_scores) {
    legend.push_back({{Ink::full}, "visible"});
  } else {
    legend.push_back({{Ink::full}, "full"});
    legend.push_back({{Ink::partial}, "partial"});
  }
  legend.push_back({{Ink::empty}, are_scores ? "hidden" : "empty"});
  return legend;
}

std::string caption_of(const Picture& picture, const Panel& panel) {
  const std::string computed = computed_text(picture, panel);
  return share_text(panel.cells.share) + (computed.empty() ? "" : "; ") + computed;
}

std::string description_of(const Picture& picture) {
  std::string text;
  for (const Panel& panel : picture.panels) {
    const auto& [visible, all, exact] = panel.cells.share;
    const std::string title = title_of(picture, panel), blocks = blocks_text(panel.cells);
    text += fmt::format("{}{}{}{}{} of {} scores are visible{}{}", text.empty() ? "" : "; ", title,
                        title.empty() ? "" : ": ", exact ? "" : "about ",
                        grouped(std::llround(visible)), grouped(std::llround(all)),
                        blocks.empty() ? "" : ", ", blocks);
  }
  return text;
}

std::string subtitle_of(const Picture& picture) {
  const char* const places = !picture.by_head    ? "batches"
                             : !picture.by_batch ? "heads"
                                                 : "pairs of batch and head";
  const std::string more =
      picture.left_out == 0
          ? ""
          : fmt::format("; {} more {} are not drawn",
                        grouped(static_cast<std::int64_t>(picture.left_out)), places);
  return fmt::format("{} row{} x {} column{} of scores{}", grouped(picture.rows),
                     picture.rows == 1 ? "" : "s", grouped(picture.columns),
                     picture.columns == 1 ? "" : "s", more);
}

}  // namespace attn::pictures
