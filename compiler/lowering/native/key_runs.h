// Runs of adjacent blocks of keys that a tile of queries sees, from the cells of keys that masks
// show to it.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/lowering/native/tiles.h"
#include "compiler/passes/analysis/blocks.h"

namespace attn::lowering::native {

// Adjacent blocks of keys.
struct KeyRun {
  // The first, a multiple of the tile's cell; of a patch see patches_of.
  std::int64_t key = 0;
  std::int64_t blocks = 0;
  bool masked = false;  // masks hide a part of each, or may
  // Of ordered lists of rows (row_blocks.h): how far before this tile the last one is that sees the
  // same rows; 0: there is none.
  std::int64_t before = 0;
  auto operator<=>(const KeyRun&) const = default;
};

// Adjacent cells that are alike, and not empty.
struct Stretch {
  std::int64_t first = 0, last = 0;
  passes::Block block = passes::Block::full;
  bool operator==(const Stretch&) const = default;
};

// Of a row of cells; in ascending order, as long as possible.
std::vector<Stretch> stretches_of(std::span<const passes::Block> cells);
// The same of stretches that do not overlap, in any order.
std::vector<Stretch> joined(std::vector<Stretch> stretches);

// The runs of such stretches, in a row of `cells` cells of the tile, of which the last may be cut
// off by the end of the keys. A block begins at the first visible cell that is in no other one.
std::vector<KeyRun> runs_of(std::span<const Stretch> stretches, std::int64_t cells,
                            const Tile& tile);

}  // namespace attn::lowering::native
