// Which blocks of the score matrix a mask shows: what a block-skipping kernel has to compute.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/passes/analysis/intervals.h"

namespace attn::passes {

enum class Block : std::uint8_t {
  empty,   // no score is visible
  full,    // every score is visible
  partial  // anything else, or unknown
};

// Blocks of `rows` x `columns` scores; the last ones may be smaller.
struct BlockMap {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t height = 0;    // blocks
  std::int64_t width = 0;     // blocks
  std::vector<Block> blocks;  // row-major

  Block at(std::int64_t row, std::int64_t column) const {
    return blocks[static_cast<std::size_t>(row * width + column)];
  }
  std::int64_t count(Block block) const;

  bool operator==(const BlockMap&) const = default;
};

inline constexpr std::int64_t kBlock = 128;

// The map of one batch and head. The intervals must be static (spans.h). Takes no more memory than
// the map. If the intervals are exact, a partial block has both visible and hidden scores.
BlockMap block_map(const VisibleColumns& columns, std::int64_t batch = 0, std::int64_t head = 0,
                   std::int64_t block_rows = kBlock, std::int64_t block_columns = kBlock);

}  // namespace attn::passes
