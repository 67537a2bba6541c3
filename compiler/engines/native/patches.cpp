#include "compiler/engines/native/patches.h"

#include <algorithm>

#include "compiler/engines/native/expressions.h"
#include "compiler/engines/native/maps.h"
#include "compiler/engines/shared/operands.h"

namespace attn::engines::native {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;
using masks::Block;

constexpr std::int64_t kWidths[] = {8, 16, 32};  // of tiles of queries

bool is_division(const Node& node) {
  return node.type == ir::Type::integer && (node.is(Op::floordiv_) || node.is(Op::mod_));
}

class GridFinder {
 public:
  explicit GridFinder(const ir::Attention& attention)
      : attention_(attention), dag_(attention.dag) {}

  std::optional<Grid> run() && {
    for (const ExprId id : ir::reachable(dag_, attention_.masks)) {
      if (is_division_of_index(dag_[id]) && !look(dag_[id])) return std::nullopt;
    }
    if (!has_x_of_row_ || !has_x_of_column_) return std::nullopt;
    add_values();
    return std::move(grid_);
  }

 private:
  bool is_division_of_index(const Node& node) const {
    if (!is_division(node)) return false;
    const Node& index = dag_[node.operands[0]];
    return index.is(Op::row_) || index.is(Op::column_);
  }

  // False if it is not of the same width as those before.
  bool look(const Node& node) {
    const auto width = ir::fold_integer(dag_, node.operands[1], attention_.dims);
    if (!width || *width <= 0 || (grid_.width != 0 && grid_.width != *width)) return false;
    grid_.width = *width;
    if (node.is(Op::mod_)) {
      (dag_[node.operands[0]].is(Op::row_) ? has_x_of_row_ : has_x_of_column_) = true;
    }
    return true;
  }

  void add_values() {
    std::vector<ExprId> roots = attention_.masks;
    roots.push_back(attention_.score);
    if (attention_.dropout && attention_.dropout->keep) roots.push_back(*attention_.dropout->keep);
    for (const ExprId id : ir::reachable(dag_, roots)) {
      const Node& node = dag_[id];
      if (node.is(Op::row_) || node.is(Op::column_)) {
        grid_.values.push_back({id, place(node) + ".index"});
      } else if (is_division_of_index(node) &&
                 ir::fold_integer(dag_, node.operands[1], attention_.dims) == grid_.width) {
        const std::string of = place(dag_[node.operands[0]]);
        grid_.values.push_back({id, of + (node.is(Op::mod_) ? ".x" : ".y")});
      }
    }
  }

  static std::string place(const Node& index) { return index.is(Op::row_) ? "row" : "column"; }

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  Grid grid_;
  bool has_x_of_row_ = false, has_x_of_column_ = false;
};

// Batches are not at equal distances.
bool has_unequal_places(const ir::Attention& attention) {
  return std::ranges::any_of(std::initializer_list<const char*>{"q", "k", "v", "o"},
                             [&](const char* name) {
                               const ir::LayoutKind kind = layout_of(attention, name).kind;
                               return kind == ir::LayoutKind::thd || kind == ir::LayoutKind::paged;
                             });
}

}  // namespace

std::optional<Grid> grid_of(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  if (attention.lengths_q || attention.lengths_kv || attention.is_random() ||
      masks_read_inputs(attention) || has_unequal_places(attention)) {
    return std::nullopt;
  }
  auto grid = GridFinder(attention).run();
  if (!grid || grid->width % kPatchWidth != 0 || d[Dim::Sq] % grid->width != 0 ||
      d[Dim::Skv] % (grid->width * kPatchHeight) != 0) {
    return std::nullopt;
  }
  return grid;
}

std::vector<Tile> patch_tiles(const ir::Attention& attention, const Grid& grid, const Tile& tile) {
  std::vector<Tile> tiles;
  if (tile.keys != kPatchWidth * kPatchHeight || tile.tables != 0 || !batches_as(attention, tile))
    return tiles;
  const std::int64_t rows = attention.dims[Dim::Sq] / grid.width, queries = tile.rows_of_head();
  for (const std::int64_t width : kWidths) {
    if (queries % width != 0 || grid.width % width != 0 || rows % (queries / width) != 0) continue;
    tiles.push_back(tile);
    tiles.back().patch = Patch{grid.width, width, queries / width};
  }
  return tiles;
}

std::vector<KeyRun> patches_of(const std::vector<Block>& cells, std::int64_t grid_width) {
  const std::int64_t across = grid_width / kPatchWidth;
  const std::int64_t rows = static_cast<std::int64_t>(cells.size()) / across;
  std::vector<KeyRun> runs;
  for (std::int64_t x = 0; x < across; ++x) {
    const auto cell = [&](std::int64_t y) {
      return cells[static_cast<std::size_t>(y * across + x)];
    };
    std::int64_t first = 0, last = rows - 1;
    while (first < rows && cell(first) == Block::empty) ++first;
    while (last > first && cell(last) == Block::empty) --last;
    if (first == rows) continue;
    const std::int64_t height = (last - first) / kPatchHeight * kPatchHeight + kPatchHeight;
    const std::int64_t begin = std::min(first, rows - height);
    for (std::int64_t y = begin; y < begin + height; y += kPatchHeight) {
      bool empty = true, full = true;
      for (std::int64_t i = y; i < y + kPatchHeight; ++i) {
        empty &= cell(i) == Block::empty, full &= cell(i) == Block::full;
      }
      if (!empty) runs.push_back({(y * across + x) * kCell, 1, !full});
    }
  }
  return runs;
}

}  // namespace attn::engines::native
