#include "compiler/pictures/computed.h"

#include <algorithm>
#include <functional>

#include "compiler/masks_of_values/known_values.h"
#include "runtime/base/ceil_div.h"

namespace attn::pictures {
namespace {

using engines::Coverage;
using engines::KeyRun;
using engines::Stretch;
using ir::Dim;
using ir::ExprId;
using ir::Op;
using masks::Block;
using masks::Range;

ExprId length_of(ir::Attention& attention, const std::optional<ExprId>& given, bool has_lengths,
                 std::string_view name, Dim dim) {
  if (given) return *given;
  ir::Dag& dag = attention.dag;
  if (!has_lengths) return dag.integer(attention.dims[dim]);
  const ExprId batch[] = {dag.leaf(Op::batch_)};
  return dag.add_symbol(Op::load_, std::string(name), ir::Type::integer, batch);
}

// Shows the blocks that the bands and lengths leave: those have become masks, the only ones.
ir::Attention by_bands(ir::Attention attention, const engines::Bands& bands) {
  ir::Dag& dag = attention.dag;
  attention.masks.clear();
  const bool has_q = attention.lengths_q, has_kv = attention.lengths_kv;
  const ExprId row = dag.leaf(Op::row_), column = dag.leaf(Op::column_);
  const ExprId rows = length_of(attention, bands.rows, has_q, ir::kLengthsQ, Dim::Sq);
  const ExprId columns = length_of(attention, bands.columns, has_kv, ir::kLengthsKv, Dim::Skv);
  const auto add = [&](const masks::Band& band, ExprId last) {  // its diagonal's column of row 0
    const ExprId right = dag.add(Op::sub_, {dag.add(Op::sub_, {column, row}), last});
    const ExprId left = dag.add(Op::add_, {dag.add(Op::sub_, {row, column}), last});
    if (band.right) {
      attention.masks.push_back(dag.add(Op::le_, {right, dag.integer(*band.right)}));
    }
    if (band.left) {
      attention.masks.push_back(dag.add(Op::le_, {left, dag.integer(*band.left)}));
    }
  };
  add(bands.band, dag.integer(0));
  add(bands.from_end, dag.add(Op::sub_, {columns, rows}));
  if (has_q || bands.rows) attention.masks.push_back(dag.add(Op::lt_, {row, rows}));
  if (has_kv || bands.columns) attention.masks.push_back(dag.add(Op::lt_, {column, columns}));
  attention.lengths_q = attention.lengths_kv = false;
  return attention;
}

// Marks the cells of an axis that contain some indices.
class Marks {
 public:
  Marks(std::int64_t cell, std::int64_t count)
      : cell_(cell), is_marked_(static_cast<std::size_t>(count)) {}

  // The indices of a class from `first` to before `end`.
  void set(const Stretch& stretch, std::int64_t of_class, std::int64_t first, std::int64_t end) {
    clear();
    add(stretch, of_class, first, end);
  }
  void add(const Stretch& stretch, std::int64_t of_class, std::int64_t first, std::int64_t end) {
    if (first >= end) return;
    const std::int64_t low = stretch.index(of_class, first) / cell_;
    const std::int64_t high = stretch.index(of_class, end - 1) / cell_;
    if (stretch.step <= cell_) {
      for (std::int64_t i = low; i <= high; ++i) mark(i);
    } else {
      for (std::int64_t i = first; i < end; ++i) mark(stretch.index(of_class, i) / cell_);
    }
  }
  void clear() {
    for (const std::int64_t i : marked_) is_marked_[static_cast<std::size_t>(i)] = false;
    marked_.clear();
  }
  const std::vector<std::int64_t>& cells() const { return marked_; }

 private:
  void mark(std::int64_t i) {
    if (is_marked_[static_cast<std::size_t>(i)]) return;
    is_marked_[static_cast<std::size_t>(i)] = true;
    marked_.push_back(i);
  }

  std::int64_t cell_;
  std::vector<bool> is_marked_;
  std::vector<std::int64_t> marked_;
};

// Paints the blocks of scores that one kernel computes.
class BlockPainter {
 public:
  explicit BlockPainter(const masks::BlockMap& map)
      : map_(map), down_(map.rows, map.height), across_(map.columns, map.width) {
    made_.cells.resize(map.blocks.size());
  }

 protected:
  bool are_scores() const { return map_.rows == 1 && map_.columns == 1; }

  void paint_tile(const Coverage& coverage, std::int64_t tile, const std::vector<KeyRun>& runs) {
    for (std::int64_t c = 0; c < view_->classes; ++c) {
      const std::int64_t rows = mark_rows(coverage, tile, c);
      for (const KeyRun& run : runs) {
        const std::int64_t columns = mark_columns(coverage, run, c);
        made_.scores += static_cast<double>(rows) * static_cast<double>(columns);
        fill(coverage.masks_all || run.masked);
      }
    }
  }

  // How many there are.
  std::int64_t mark_rows(const Coverage& coverage, std::int64_t tile, std::int64_t of_class) {
    const Stretch& rows = view_->rows;
    if (coverage.patch) {
      const auto& [grid, width, height] = *coverage.patch;
      const std::int64_t across = grid / width;
      const std::int64_t first = tile / across * height * across + tile % across;
      down_.clear();
      for (std::int64_t y = 0; y < height; ++y) {
        const std::int64_t begin = (first + y * across) * width;
        down_.add(rows, of_class, begin, begin + width);
      }
      return width * height;
    }
    const std::int64_t begin = tile * coverage.rows;
    const std::int64_t end = std::min(rows.count, begin + coverage.rows);
    down_.set(rows, of_class, begin, end);
    return end - begin;
  }

  std::int64_t mark_columns(const Coverage& coverage, const KeyRun& run, std::int64_t of_class) {
    using engines::kCell, engines::kPatchHeight, engines::kPatchWidth;
    const Stretch& columns = view_->columns;
    if (coverage.patch) {
      const std::int64_t across = coverage.patch->grid / kPatchWidth;
      across_.clear();
      for (std::int64_t y = 0; y < kPatchHeight; ++y) {
        const std::int64_t begin = (run.key / kCell + y * across) * kPatchWidth;
        across_.add(columns, of_class, begin, begin + kPatchWidth);
      }
      return kPatchWidth * kPatchHeight;
    }
    const std::int64_t end = std::min(columns.count, run.key + run.blocks * coverage.columns);
    across_.set(columns, of_class, run.key, end);
    return end - run.key;
  }

  void fill(bool masked) {
    for (const std::int64_t row : down_.cells()) {
      for (const std::int64_t column : across_.cells()) {
        ByKernel& cell = made_.cells[static_cast<std::size_t>(row * map_.width + column)];
        const bool is_first = cell.kernel == ByKernel::kNone || cell.kernel == number_;
        if (is_first || !are_scores()) cell.kernel = is_first ? number_ : ByKernel::kSeveral;
        cell.masked |= masked;
      }
    }
  }

  const masks::BlockMap& map_;
  Computed made_;
  Marks down_, across_;  // cells of the block that is painted
  std::uint8_t number_ = 0;
  const engines::View* view_ = nullptr;
};

class Painter : public BlockPainter {
 public:
  Painter(const reference::Bindings& values, const masks_of_values::Place& place,
          const masks::BlockMap& map)
      : BlockPainter(map), values_(values), known_(values), place_(place) {}

  void paint(const Coverage& coverage, std::uint8_t number) {
    number_ = number;
    if (coverage.segments.empty())
      paint(coverage, coverage.view, place_);
    else
      paint_segments(coverage);
  }

  // Several kernels may compute a score, but only one shows it: this one.
  Status show(const Coverage& coverage, std::uint8_t number) {
    if (!are_scores()) return {};
    ATTN_ASSIGN(const masks_of_values::Cells shown,
                masks_of_values::scores_at(coverage.attention, values_, place_));
    const auto& [rows, columns, classes] = coverage.view;
    for (std::int64_t c = 0; c < classes; ++c) {
      for (std::int64_t i = 0; i < rows.count; ++i) {
        for (std::int64_t j = 0; j < columns.count; ++j) {
          if (shown.map.at(i, j) == Block::empty) continue;
          made_.cells[static_cast<std::size_t>(rows.index(c, i) * map_.width + columns.index(c, j))]
              .kernel = number;
        }
      }
    }
    return {};
  }

  Computed take() { return std::move(made_); }

 private:
  // Runs of a tensor's elements are batches of the kernel, with masks that are alike for all.
  void paint_segments(const Coverage& coverage) {
    const io::HostTensor& tensor = values_.tensors.find(coverage.segments)->second;
    const std::int64_t size = tensor.dims.back();
    const std::int64_t before = coverage.by_batch ? place_.batch * size : 0;
    const auto id = [&](std::int64_t i) {
      return tensor.integer(static_cast<std::size_t>(before + i));
    };
    Coverage segment = coverage;
    for (std::int64_t begin = 0, end = 0; begin < size; begin = end) {
      while (end < size && id(end) == id(begin)) ++end;
      segment.view = {{begin, 1, end - begin}, {begin, 1, end - begin}};
      segment.attention.dims.set(Dim::Sq, end - begin);
      segment.attention.dims.set(Dim::Skv, end - begin);
      paint(segment, segment.view, {0, place_.head});
    }
  }

  void paint(const Coverage& coverage, const engines::View& view,
             const masks_of_values::Place& place) {
    view_ = &view;
    if (coverage.lists)
      paint_lists(coverage, *coverage.lists, place);
    else
      paint_found(coverage, place);
  }

  // Lists that the kernel has in its text.
  void paint_lists(const Coverage& coverage, const engines::KeyBlocks& lists,
                   const masks_of_values::Place& place) {
    const std::int64_t heads = lists.axes.head ? coverage.attention.dims[Dim::Hq] : 1;
    const std::int64_t list =
        (lists.axes.batch ? place.batch : 0) * heads + (lists.axes.head ? place.head : 0);
    for (std::int64_t t = list * lists.tiles; t < (list + 1) * lists.tiles; ++t) {
      const auto& tile = lists.lists[static_cast<std::size_t>(t)];
      const auto first = lists.runs.begin() + tile.first;
      paint_tile(coverage, tile.tile, {first, first + tile.runs});
    }
  }

  // Blocks that the masks, or bands and lengths, leave for these values.
  void paint_found(const Coverage& coverage, const masks_of_values::Place& place) {
    const ir::Attention attention =
        coverage.bands ? by_bands(coverage.attention, *coverage.bands)
                       : masks_of_values::with_lengths_as_masks(coverage.attention);
    const masks::BlockMap found =
        masks_of_values::block_map_at(attention, known_, place, coverage.rows, coverage.cell);
    for (std::int64_t row = 0; row < found.height; ++row) {
      const auto begin = found.blocks.begin() + row * found.width;
      const auto stretches = engines::stretches_of({begin, begin + found.width});
      paint_tile(coverage, row,
                 engines::runs_of(stretches, found.width, coverage.columns, coverage.cell));
    }
  }

  const reference::Bindings& values_;
  const masks_of_values::KnownValues known_;
  const masks_of_values::Place place_;
};

}  // namespace

Result<Computed> computed_at(std::span<const Coverage> kernels, const reference::Bindings& values,
                             const masks_of_values::Place& place, const masks::BlockMap& map) {
  Painter painter(values, place, map);
  std::uint8_t number = 0;
  for (const Coverage& coverage : kernels) painter.paint(coverage, number++);
  for (number = 0; number < kernels.size() && kernels.size() > 1; ++number) {
    ATTN_RETURN_IF_ERROR(painter.show(kernels[number], number));
  }
  return painter.take();
}

namespace {

struct Overlap {
  std::int64_t cell, numbers;
};

// Cells that have any of the numbers, ascending.
std::vector<Overlap> cells_of(const ranks::Intervals& set, std::int64_t size) {
  std::vector<Overlap> cells;
  for (const ranks::Interval& each : set) {
    for (std::int64_t i = each.begin / size; i * size < each.end; ++i) {
      const std::int64_t numbers =
          std::min(each.end, (i + 1) * size) - std::max(each.begin, i * size);
      if (cells.empty() || cells.back().cell < i) cells.push_back({i, 0});
      cells.back().numbers += numbers;
    }
  }
  return cells;
}

// How many scores of a cell owners have, one owner after another.
class Counting {
 public:
  void add(std::uint8_t owner, double scores) {
    if (owner != last_) of_last_ = 0;
    last_ = owner;
    all_ += scores;
    of_last_ += scores;
    if (of_last_ > most_) most_ = of_last_, of_most_ = owner;
  }
  std::uint8_t owner() const {
    if (all_ == 0) return ByKernel::kNone;
    return 2 * most_ > all_ ? of_most_ : ByKernel::kSeveral;
  }
  bool is_shared() const { return most_ < all_; }

 private:
  std::uint8_t last_ = ByKernel::kNone, of_most_ = ByKernel::kNone;
  double of_last_ = 0, most_ = 0, all_ = 0;
};

class Owners {
 public:
  Owners(std::span<const Owned> owned, const masks_of_values::Place& place,
         const masks::BlockMap& map, const masks_of_values::CountVisible& visible)
      : map_(map), visible_(visible) {
    for (const Owned& part : owned) {
      if (part.heads.begin <= place.head && place.head < part.heads.end) owned_.push_back(&part);
    }
  }

  Computed run() {
    const std::vector<Counting> all = counts();
    std::vector<bool> looked_at(all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      looked_at[i] = all[i].is_shared() && map_.blocks[i] == masks::Block::partial;
    const std::vector<Counting> shared = counts(&looked_at);
    Computed made{std::vector<ByKernel>(all.size())};
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (map_.blocks[i] == masks::Block::empty) continue;
      // A block that seems partial may show nothing.
      const std::uint8_t owner = shared[i].owner();
      made.cells[i].kernel = owner == ByKernel::kNone ? all[i].owner() : owner;
    }
    return made;
  }

 private:
  // Counts all scores, or the visible ones of the cells in `looked_at`.
  std::vector<Counting> counts(const std::vector<bool>* looked_at = nullptr) const {
    std::vector<Counting> counts(map_.blocks.size());
    for (const Owned* part : owned_) {
      const std::vector<Overlap> columns = cells_of(part->columns, map_.columns);
      for (const auto& [row, rows] : cells_of(part->rows, map_.rows)) {
        for (const auto& [column, numbers] : columns) {
          const auto cell = static_cast<std::size_t>(row * map_.width + column);
          if (looked_at != nullptr && !(*looked_at)[cell]) continue;
          counts[cell].add(part->owner, looked_at != nullptr ? visible_of(*part, row, column)
                                                             : static_cast<double>(rows * numbers));
        }
      }
    }
    return counts;
  }

  double visible_of(const Owned& part, std::int64_t row, std::int64_t column) const {
    double sum = 0;
    for (const ranks::Interval& rows : in_cell(part.rows, row, map_.rows)) {
      for (const ranks::Interval& columns : in_cell(part.columns, column, map_.columns))
        sum += visible_(rows, columns);
    }
    return sum;
  }

  static ranks::Intervals in_cell(const ranks::Intervals& set, std::int64_t cell,
                                  std::int64_t size) {
    return ranks::common(set, {{cell * size, (cell + 1) * size}});
  }

  const masks::BlockMap& map_;
  const masks_of_values::CountVisible& visible_;
  std::vector<const Owned*> owned_;
};

}  // namespace

Computed owned_at(std::span<const Owned> owned, const masks_of_values::Place& place,
                  const masks::BlockMap& map, const masks_of_values::CountVisible& visible) {
  return Owners(owned, place, map, visible).run();
}

}  // namespace attn::pictures
