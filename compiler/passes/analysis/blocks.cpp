#include "compiler/passes/analysis/blocks.h"

#include <algorithm>

#include "compiler/passes/analysis/spans.h"

namespace attn::passes {
namespace {

std::int64_t blocks_in(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }

// One row of blocks: how many of its rows reach into each block, and how many fill it.
class BlockRow {
 public:
  BlockRow(std::int64_t size, std::int64_t block)
      : size_(size), block_(block), width_(blocks_in(size, block)) {}

  void clear() {
    rows_ = 0;
    reached_.assign(static_cast<std::size_t>(width_ + 1), 0);
    filled_.assign(static_cast<std::size_t>(width_ + 1), 0);
  }

  void add(const Spans& spans) {
    ++rows_;
    for (const Span& span : spans) {
      count(reached_, span.low / block_, blocks_in(span.high, block_));
      const std::int64_t end = span.high == size_ ? width_ : span.high / block_;
      if (span.exact) count(filled_, blocks_in(span.low, block_), end);
    }
  }

  void write(std::vector<Block>& blocks) const {
    std::int64_t reached = 0, filled = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(width_); ++i) {
      reached += reached_[i];
      filled += filled_[i];
      blocks.push_back(reached == 0      ? Block::empty
                       : filled == rows_ ? Block::full
                                         : Block::partial);
    }
  }

 private:
  // Counts changes from one block to the next, so that a span of any length takes two steps.
  static void count(std::vector<std::int64_t>& changes, std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    ++changes[static_cast<std::size_t>(begin)];
    --changes[static_cast<std::size_t>(end)];
  }

  std::int64_t size_, block_, width_;
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> reached_, filled_;
};

}  // namespace

std::int64_t BlockMap::count(Block block) const { return std::ranges::count(blocks, block); }

BlockMap block_map(const VisibleColumns& columns, std::int64_t batch, std::int64_t head,
                   std::int64_t block_rows, std::int64_t block_columns) {
  const ir::Dims& dims = columns.attention.dims;
  const std::int64_t rows = dims[ir::Dim::Sq];
  BlockMap map{block_rows,
               block_columns,
               blocks_in(rows, block_rows),
               blocks_in(dims[ir::Dim::Skv], block_columns),
               {}};
  RowSpans spans(columns);
  spans.look_at(batch, head);
  BlockRow blocks(dims[ir::Dim::Skv], block_columns);
  for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
    blocks.clear();
    const std::int64_t end = std::min(rows, begin + block_rows);
    for (std::int64_t row = begin; row < end; ++row) blocks.add(spans.of(row));
    blocks.write(map.blocks);
  }
  return map;
}

}  // namespace attn::passes
