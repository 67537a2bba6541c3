// Lists of blocks of scores for tiles: what those of keys (key_blocks.h) and of rows (row_lists.h)
// have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compiler/engines/native/key_blocks.h"
#include "compiler/engines/shared/key_runs.h"
#include "compiler/ir/attention.h"
#include "compiler/masks/axes.h"
#include "compiler/target/deadline.h"
#include "runtime/base/status.h"

namespace attn::engines::native {

// Tiles are along one axis of the scores, and their blocks along the other.
struct Listing {
  std::int64_t tiles = 0;              // of a list
  std::int64_t rows = 0, columns = 0;  // of a cell of scores
  bool by_keys = false;                // tiles are of keys and blocks of rows, not the other way
  std::int64_t heads = 1;              // that share a list, which has what any of them shows
  std::int64_t units = 1;              // of all batches: each computes the tiles of a list
  std::int64_t least = 0;              // blocks that are computed of a tile that shows none
  bool shares = true;  // tiles with the same runs share them; else only with the tile before
  bool sorts = true;   // the longest tiles first, where they are uneven
  target::Deadline* deadline = nullptr;  // of the build; ends it
};

// The cells of each row (column, if Listing::by_keys) that are not empty, in any order.
using Stretches = std::vector<std::vector<CellRun>>;
// The runs of a tile of the list with these, which it may take. Called for the tiles of a list in
// ascending order.
using RunsOfTile = std::function<std::vector<KeyRun>(Stretches& stretches, std::int64_t tile)>;

// One list for each batch and head that masks tell apart. Errors: those of key_blocks.
Result<KeyBlocks> listed_blocks(const ir::Attention& attention, const masks::Axes& mask_axes,
                                const Listing& listing, const RunsOfTile& runs_of_tile);

}  // namespace attn::engines::native
