#include "compiler/pictures/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/masks/axes.h"

namespace attn::pictures {
namespace {

using ir::Dim;
using masks::Block;

constexpr std::size_t kMostPanels = 6;
// Limits for all places together: scores, and blocks, which take longer to find.
constexpr std::int64_t kMostScores = std::int64_t{1} << 21, kMostBlocks = std::int64_t{1} << 18;

masks::Axes axes_of(const ir::Attention& attention, const Options& options) {
  masks::Dependence dependence(attention.dag);
  masks::Axes axes;
  for (const ir::ExprId mask : attention.masks) axes = axes | dependence[mask];
  if (options.score) axes = axes | dependence[attention.score];
  axes.head |= std::ranges::any_of(
      options.owned, [&](const Owned& part) { return part.heads != options.owned.front().heads; });
  return masks::varying(axes, attention.dims);
}

Status check_index(std::string_view option, std::optional<std::int64_t> index, std::int64_t size) {
  if (!index || (0 <= *index && *index < size)) return {};
  return {ErrorCode::invalid_argument,
          fmt::format("{} {}: the spec has {} of them, counted from 0", option, *index, size)};
}

std::int64_t cells_along(std::int64_t size, std::int64_t cell) { return (size - 1) / cell + 1; }

// Length of the shortest run of adjacent rows that an owner has.
std::int64_t fewest_rows(const Options& options) {
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (const Owned& part : options.owned) {
    for (const ranks::Interval& rows : part.rows) fewest = std::min(fewest, rows.size());
  }
  return fewest;
}

// Size of a cell, no larger than the scores; with larger blocks where several places are drawn,
// each smaller.
std::pair<std::int64_t, std::int64_t> cell_of(const ir::Dims& dims, const Options& options,
                                              bool several) {
  const std::int64_t rows = dims[Dim::Sq], columns = dims[Dim::Skv];
  const auto within = [&](std::int64_t height, std::int64_t width) {
    return std::pair{std::min(height, rows), std::min(width, columns)};
  };
  if (options.cell) return within(options.cell->first, options.cell->second);
  const std::int64_t longest = std::max(rows, columns);
  if (longest <= options.scores) return {1, 1};
  const std::int64_t most = several ? options.blocks_of_several : options.blocks;
  std::int64_t block = options.smallest;
  while (cells_along(longest, block) > most) block *= 2;
  std::int64_t height = block;
  while (height > fewest_rows(options) && cells_along(rows, height / 2) <= options.rows_of_owners)
    height /= 2;
  return within(height, block);
}

Status check_not_empty(const ir::Dims& dims) {
  if (dims[Dim::Sq] > 0 && dims[Dim::Skv] > 0) return {};
  return {ErrorCode::invalid_argument, fmt::format("{} rows and {} columns have no scores to draw",
                                                   dims[Dim::Sq], dims[Dim::Skv])};
}

Status check_cells(const ir::Dims& dims, std::pair<std::int64_t, std::int64_t> cell,
                   const Options& options) {
  const std::int64_t height = cells_along(dims[Dim::Sq], cell.first);
  const std::int64_t width = cells_along(dims[Dim::Skv], cell.second);
  if (height > kMostCells / width) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} x {} cells are too many for a picture, of at most {}",
                             grouped(height), grouped(width), grouped(kMostCells)),
                 {kDrawLess}};
  }
  if (!options.score || cell == std::pair<std::int64_t, std::int64_t>{1, 1}) return {};
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("{} rows and {} columns are drawn as blocks, which have no one change of the "
                  "score",
                  grouped(dims[Dim::Sq]), grouped(dims[Dim::Skv])),
      {fmt::format("bind smaller dimensions, up to {}, or choose --blocks 1,1", options.scores)}};
}

std::vector<std::int64_t> indexes(std::optional<std::int64_t> chosen, bool varies,
                                  std::int64_t size) {
  if (chosen || !varies) return {chosen.value_or(0)};
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  return all;
}

bool same(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

bool look_alike(const Panel& x, const Panel& y) {
  return x.cells == y.cells && x.computed == y.computed &&
         std::ranges::equal(x.changes, y.changes, same);
}

Result<Panel> panel_at(const ir::Attention& attention, const reference::Bindings& values,
                       const masks_of_values::Place& place, const Options& options,
                       std::pair<std::int64_t, std::int64_t> cell, std::int64_t places) {
  Panel panel;
  panel.places.push_back(place);
  if (cell.first == 1 && cell.second == 1) {
    ATTN_ASSIGN(panel.cells, masks_of_values::scores_at(attention, values, place));
  } else {
    ATTN_ASSIGN(panel.cells, masks_of_values::blocks_at(attention, values, place, cell.first,
                                                        cell.second, places));
  }
  if (options.score) {
    ATTN_ASSIGN(panel.changes,
                masks_of_values::changes_at(attention, values, place, *options.score));
  }
  if (!options.kernels.empty()) {
    ATTN_ASSIGN(panel.computed, computed_at(options.kernels, values, place, panel.cells.map));
  }
  if (!options.owners.empty()) {
    panel.computed = owned_at(options.owned, place, panel.cells.map,
                              masks_of_values::count_visible_at(attention, values, place, places));
  }
  return panel;
}

void add(Picture& picture, Panel panel) {
  for (Panel& known : picture.panels) {
    if (!look_alike(known, panel)) continue;
    known.places.push_back(panel.places.front());
    return;
  }
  if (picture.panels.size() == kMostPanels) {
    ++picture.left_out;
    return;
  }
  picture.panels.push_back(std::move(panel));
}

void set_changes(Picture& picture) {
  bool any = false;
  for (const Panel& panel : picture.panels) {
    for (std::size_t i = 0; i < panel.changes.size(); ++i) {
      const double change = panel.changes[i];
      const bool is_visible = panel.cells.map.blocks[i] != Block::empty;
      picture.has_nan = picture.has_nan || (is_visible && std::isnan(change));
      if (!std::isfinite(change)) continue;
      picture.least = any ? std::min(picture.least, change) : change;
      picture.most = any ? std::max(picture.most, change) : change;
      any = true;
    }
  }
}

// "head 3", "heads 0 to 3", "heads 0, 2 and 4 others"
std::string indexes_text(std::string_view noun, std::string_view plural,
                         const std::vector<std::int64_t>& all) {
  const std::int64_t first = all.front(), last = all.back();
  const auto count = static_cast<std::int64_t>(all.size());
  if (count == 1) return fmt::format("{} {}", noun, first);
  if (last - first + 1 == count) return fmt::format("{} {} to {}", plural, first, last);
  if (count == 2) return fmt::format("{} {} and {}", plural, first, last);
  if (count == 3) return fmt::format("{} {}, {} and {}", plural, first, all[1], last);
  return fmt::format("{} {}, {} and {} others", plural, first, all[1], count - 2);
}

}  // namespace

Result<Picture> picture_of(const ir::Attention& attention, const reference::Bindings& values,
                           const Options& options) {
  const ir::Dims& dims = attention.dims;
  ATTN_RETURN_IF_ERROR(check_index("--b", options.batch, dims[Dim::B]));
  ATTN_RETURN_IF_ERROR(check_index("--h", options.head, dims[Dim::Hq]));
  ATTN_RETURN_IF_ERROR(check_not_empty(dims));
  const masks::Axes axes = axes_of(masks_of_values::with_lengths_as_masks(attention), options);
  const auto batches = indexes(options.batch, axes.batch, dims[Dim::B]);
  const auto heads = indexes(options.head, axes.head, dims[Dim::Hq]);
  const auto all = static_cast<std::int64_t>(batches.size() * heads.size());
  const auto cell = cell_of(dims, options, all > 1);
  ATTN_RETURN_IF_ERROR(check_cells(dims, cell, options));
  Picture picture{attention.name,
                  attention.align == ir::Align::top_left ? "q_idx" : "row",
                  dims[Dim::Sq],
                  dims[Dim::Skv],
                  axes.batch,
                  axes.head,
                  {}};
  picture.score = options.score;
  picture.lowering = options.lowering;
  picture.division = options.division;
  picture.kernels = options.owners;
  const bool are_scores = cell == std::pair<std::int64_t, std::int64_t>{1, 1};
  const std::int64_t most = are_scores ? kMostScores : kMostBlocks;
  const std::int64_t cells =
      cells_along(picture.rows, cell.first) * cells_along(picture.columns, cell.second);
  const std::int64_t drawn = std::min(all, std::max<std::int64_t>(most / cells, 4));
  std::int64_t left = drawn;
  for (const std::int64_t batch : batches) {
    for (const std::int64_t head : heads) {
      if (--left < 0) {
        ++picture.left_out;
        continue;
      }
      ATTN_ASSIGN(Panel panel, panel_at(attention, values, {batch, head}, options, cell, drawn));
      add(picture, std::move(panel));
    }
  }
  set_changes(picture);
  for (const engines::Coverage& kernel : options.kernels) picture.kernels.push_back(kernel.what);
  return picture;
}

std::string title_of(const Picture& picture, const Panel& panel) {
  std::vector<std::int64_t> batches, heads;
  for (const auto& [batch, head] : panel.places) {
    if (std::ranges::find(batches, batch) == batches.end()) batches.push_back(batch);
    if (std::ranges::find(heads, head) == heads.end()) heads.push_back(head);
  }
  std::ranges::sort(heads);
  const std::string batch = indexes_text("batch", "batches", batches);
  const std::string head = indexes_text("head", "heads", heads);
  if (!picture.by_batch && !picture.by_head) return "";
  if (!picture.by_head) return batch;
  if (!picture.by_batch) return head;
  if (batches.size() * heads.size() == panel.places.size()) return batch + ", " + head;
  return fmt::format("batch {}, head {} and {} others", panel.places.front().batch,
                     panel.places.front().head, panel.places.size() - 1);
}

std::string share_text(const masks_of_values::Share& share) {
  return fmt::format("{}{:.3g} % of scores", share.exact ? "" : "about ", 100 * share.part());
}

std::string lowering_text(const Picture& picture) {
  if (!picture.division.empty()) return picture.division;
  const std::size_t count = picture.kernels.size();
  return fmt::format("strategy {}: {}", picture.lowering,
                     count == 1 ? picture.kernels.front() : fmt::format("{} parts", count));
}

std::string computed_text(const Picture& picture, const Panel& panel) {
  if (!panel.computed || !picture.division.empty()) return "";
  return fmt::format("{:.3g} % are computed", 100 * panel.computed->scores / panel.cells.share.all);
}

std::string blocks_text(const masks_of_values::Cells& cells) {
  if (cells.are_scores()) return "";
  const masks::BlockMap& map = cells.map;
  const bool is_exact = map.exactness == masks::Exactness::exact;
  return fmt::format("{} full and {} partial{} of {} blocks of {} x {}",
                     grouped(map.count(Block::full)), grouped(map.count(Block::partial)),
                     is_exact ? "" : " or unknown",
                     grouped(static_cast<std::int64_t>(map.blocks.size())), map.rows, map.columns);
}

std::string grouped(std::int64_t number) {
  std::string digits = fmt::format("{}", number);
  for (std::size_t i = digits.size(); i > 3 && std::isdigit(digits[i - 4]);) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

}  // namespace attn::pictures
