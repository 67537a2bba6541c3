// Which blocks of keys each tile of queries sees: what the kernel walks (attn/forward.cuh).
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/lowering/native/tiles.h"
#include "compiler/passes/analysis/axes.h"
#include "compiler/passes/analysis/blocks.h"
#include "runtime/base/status.h"

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
  bool operator==(const KeyRun&) const = default;
};

// Of a tile of queries: runs in ascending order, from `first` on in KeyBlocks::runs.
struct TileList {
  std::int64_t tile = 0;
  std::int64_t first = 0, runs = 0;
  std::int64_t blocks = 0;
};

struct KeyBlocks {
  std::vector<KeyRun> runs;
  // Of each list (batch, then head, as far as masks depend on them), the longest tile first if
  // `sorted`.
  std::vector<TileList> lists;
  std::int64_t tiles = 0;  // of a list
  passes::Axes axes;       // batch and head, if masks depend on them
  bool sorted = false;
  bool masked = false;  // whether a mask is to be computed at all
  double blocks = 0;    // of all batches and heads' units
};

// Blocks of tile.keys keys for tiles of tile.rows_of_head() rows. Masks that read tensors may show
// anything; lengths are not considered. Errors: unsupported if there are more than kMostEntries
// lists and runs. Dimensions must be bound.
inline constexpr std::int64_t kMostEntries = std::int64_t{1} << 14;
Result<KeyBlocks> key_blocks(const ir::Attention& attention, const passes::Axes& mask_axes,
                             const Tile& tile);

// The runs of a row of the tile's cells, of which the last may be cut off by the end of the keys.
std::vector<KeyRun> runs_of(const std::vector<passes::Block>& cells, const Tile& tile);

}  // namespace attn::lowering::native
