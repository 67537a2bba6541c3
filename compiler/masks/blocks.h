// Which blocks of the score matrix a mask shows: what a block-skipping kernel has to compute. And
// how many columns of it a row sees.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compiler/masks/boxes.h"
#include "compiler/masks/effort.h"

namespace attn::masks {

// Blocks of `rows` x `columns` scores; the last ones may be smaller.
struct BlockMap {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t height = 0;    // blocks
  std::int64_t width = 0;     // blocks
  std::vector<Block> blocks;  // row-major
  // If exact, a partial block has both visible and hidden scores.
  Exactness exactness = Exactness::exact;

  Block at(std::int64_t row, std::int64_t column) const {
    return blocks[static_cast<std::size_t>(row * width + column)];
  }
  std::int64_t count(Block block) const;

  bool operator==(const BlockMap&) const = default;
};

inline constexpr std::int64_t kBlock = 128;

// A search for the blocks of the batches and heads of a box, by halving: of rectangles of blocks
// first, then of the blocks that are undecided as a whole, in turns.
struct BlockSearch {
  Box box;
  std::int64_t rows = kBlock, columns = kBlock;  // of a block
  std::int64_t most = 0;    // operations (effort.h); blocks that are left are partial
  int halvings = 0;         // of a block that is undecided as a whole; then it is partial
  bool tells_full = false;  // otherwise, halves of a block that are full make it partial
  const KnownInputs* known = nullptr;
  const target::Deadline* deadline = nullptr;  // ends it, as `most` does
};
// Receives each block once, in rectangles of equal blocks: the ranges are of blocks.
using BlockSink = std::function<void(const Range& rows, const Range& columns, Block block)>;
Exactness find_blocks(const ir::Attention& attention, std::span<const ir::ExprId> masks,
                      const BlockSearch& search, const BlockSink& sink);

// The map of the masks in the batch and head of a box, which has all rows and columns, by at most
// so many operations. Dimensions must be bound.
BlockMap block_map(const ir::Attention& attention, BlockSearch search, std::int64_t operations);

// The same of the first batch and head.
BlockMap block_map(const ir::Attention& attention, std::int64_t rows = kBlock,
                   std::int64_t columns = kBlock, std::int64_t operations = Effort::kMost,
                   const target::Deadline* deadline = nullptr);

// The fewest and the most columns that a row sees. Unless exact, they are bounds: every row sees at
// least the fewest and at most the most.
struct RowCounts {
  std::int64_t fewest = 0, most = 0;
  Exactness exactness = Exactness::exact;

  bool operator==(const RowCounts&) const = default;
};

// Those of the first batch and head, by at most so many operations, and until the deadline, which
// may be null. There must be a row.
RowCounts row_counts(const ir::Attention& attention, const target::Deadline* deadline,
                     std::int64_t operations = Effort::kMost / 16);

}  // namespace attn::masks
