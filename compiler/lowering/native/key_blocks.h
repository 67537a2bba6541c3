// Which blocks of keys each tile of queries sees: what the kernel walks (attn/forward.cuh).
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/lowering/native/key_runs.h"
#include "compiler/lowering/native/tiles.h"
#include "compiler/passes/analysis/axes.h"
#include "runtime/base/status.h"

namespace attn::lowering::native {

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
inline constexpr std::int64_t kMostEntries = std::int64_t{1} << 17;
Result<KeyBlocks> key_blocks(const ir::Attention& attention, const passes::Axes& mask_axes,
                             const Tile& tile);

}  // namespace attn::lowering::native
