#include "compiler/passes/analysis/blocks.h"

#include <algorithm>

namespace attn::passes {
namespace {

constexpr int kToScores = 128;  // halvings, enough for blocks of any size

std::int64_t blocks_in(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }
bool is_single(const Range& range) { return range.low == range.high; }

class Halving {
 public:
  Halving(const ir::Attention& attention, std::span<const ir::ExprId> masks,
          const BlockSearch& search, const BlockSink& sink)
      : dims_(attention.dims), boxes_(attention, masks), search_(search), sink_(sink) {}

  Exactness run() {
    look({0, blocks_in(dims_[ir::Dim::Sq], search_.rows) - 1},
         {0, blocks_in(dims_[ir::Dim::Skv], search_.columns) - 1});
    return exactness_;
  }

 private:
  // Halves the rectangle of blocks until all are decided.
  void look(Range rows, Range columns) {
    const Box box = scores_of(rows, columns);
    Block block = looked_at(box);
    const bool single = is_single(rows) && is_single(columns);
    if (block == Block::partial && single) block = decided(box, search_.halvings);
    if (block != Block::partial || single || is_over()) return sink_(rows, columns, block);
    const bool by_rows = rows.high - rows.low >= columns.high - columns.low;
    Range& split = by_rows ? rows : columns;
    const Range whole = split;
    split.high = (whole.low + whole.high) / 2;
    look(rows, columns);
    split = {split.high + 1, whole.high};
    look(rows, columns);
  }

  // Of a block, or a part of one.
  Block decided(const Box& box, int halvings) {
    const bool one_score = is_single(box.row) && is_single(box.column);
    if (is_over()) return Block::partial;
    const Block block = looked_at(box);
    if (block != Block::partial) return block;
    if (one_score || halvings == 0) {
      exactness_ = Exactness::bound;
      return block;
    }
    const bool by_rows = is_single(box.column) || (halvings % 2 == 0 && !is_single(box.row));
    const auto [first, second] = halves(box, by_rows ? &Box::row : &Box::column);
    const Block half = decided(first, halvings - 1);
    if (half == Block::partial || (half == Block::full && !search_.tells_full)) {
      return Block::partial;
    }
    return decided(second, halvings - 1) == half ? half : Block::partial;
  }

  Box scores_of(const Range& rows, const Range& columns) const {
    const auto scores = [](const Range& blocks, std::int64_t block, std::int64_t size) {
      return Range{blocks.low * block, std::min(size, (blocks.high + 1) * block) - 1};
    };
    Box box = search_.box;
    box.row = scores(rows, search_.rows, dims_[ir::Dim::Sq]);
    box.column = scores(columns, search_.columns, dims_[ir::Dim::Skv]);
    return box;
  }

  Block looked_at(const Box& box) {
    ++looked_;
    return boxes_.of(box);
  }

  bool is_over() {
    if (looked_ < search_.most) return false;
    exactness_ = Exactness::bound;
    return true;
  }

  const ir::Dims& dims_;
  MaskBoxes boxes_;
  const BlockSearch& search_;
  const BlockSink& sink_;
  std::int64_t looked_ = 0;
  Exactness exactness_ = Exactness::exact;
};

}  // namespace

std::int64_t BlockMap::count(Block block) const { return std::ranges::count(blocks, block); }

Exactness find_blocks(const ir::Attention& attention, std::span<const ir::ExprId> masks,
                      const BlockSearch& search, const BlockSink& sink) {
  return Halving(attention, masks, search, sink).run();
}

BlockMap block_map(const ir::Attention& attention, std::int64_t rows, std::int64_t columns) {
  BlockMap map{rows,
               columns,
               blocks_in(attention.dims[ir::Dim::Sq], rows),
               blocks_in(attention.dims[ir::Dim::Skv], columns),
               {}};
  map.blocks.resize(static_cast<std::size_t>(map.height * map.width));
  BlockSearch search{whole_box(attention), rows, columns};
  search.box.batch = search.box.head = {0, 0};
  const MaskBoxes boxes(attention, attention.masks);
  search.most = Effort::kMost / std::max<std::int64_t>(1, boxes.operations());
  search.halvings = kToScores;
  search.tells_full = true;
  map.exactness = find_blocks(attention, attention.masks, search,
                              [&](const Range& down, const Range& across, Block block) {
                                for (std::int64_t row = down.low; row <= down.high; ++row) {
                                  const auto begin = map.blocks.begin() + row * map.width;
                                  std::fill(begin + across.low, begin + across.high + 1, block);
                                }
                              });
  return map;
}

}  // namespace attn::passes
