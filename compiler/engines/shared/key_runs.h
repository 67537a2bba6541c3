// Lists of the blocks of keys that tiles of queries compute: runs of adjacent blocks, from the
// cells of keys that masks show to a tile. Kernels walk them; pictures show them.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/masks/axes.h"
#include "compiler/masks/blocks.h"

namespace attn::engines {

inline constexpr std::int64_t kCell = 16;  // keys, of which blocks begin at multiples

// Keys in cells of a grid, of which kernels copy rectangles (native/patches.h). Adjacent x are
// adjacent columns of a thread's scores.
inline constexpr std::int64_t kPatchWidth = 8, kPatchHeight = 16;

// The queries of a tile that are a rectangle of a grid, row by row.
struct Patch {
  std::int64_t grid = 0;  // the grid's width
  std::int64_t width = 0, height = 0;
};

// Adjacent blocks of keys.
struct KeyRun {
  // The first, a multiple of a cell; of a patch see native/patches.h.
  std::int64_t key = 0;
  std::int64_t blocks = 0;
  bool masked = false;  // masks hide a part of each, or may
  // In ordered lists of rows (native/row_lists.h): how far before this tile the last one sees the
  // same rows; 0: there is none.
  std::int64_t before = 0;
  auto operator<=>(const KeyRun&) const = default;
};

// Adjacent cells that are alike, and not empty.
struct CellRun {
  std::int64_t first = 0, last = 0;
  masks::Block block = masks::Block::full;
  bool operator==(const CellRun&) const = default;
};

// The stretches of a row of cells, in ascending order, as long as possible.
std::vector<CellRun> stretches_of(std::span<const masks::Block> cells);
// The same of stretches that do not overlap, in any order.
std::vector<CellRun> joined(std::vector<CellRun> stretches);

// The runs of such stretches, in a row of `cells` cells of `cell` keys, of which the last may be
// cut off by the end of the keys. Blocks have `keys` keys; one begins at the first visible cell
// that is in no other one.
std::vector<KeyRun> runs_of(std::span<const CellRun> stretches, std::int64_t cells,
                            std::int64_t keys, std::int64_t cell);

// A tile of queries: runs in ascending order, from `first` on in KeyBlocks::runs.
struct TileList {
  std::int64_t tile = 0;
  std::int64_t first = 0, runs = 0;
  std::int64_t blocks = 0;
};

struct KeyBlocks {
  std::vector<KeyRun> runs;
  // Each list's tiles (batch, then head, as far as masks depend on them), the longest first if
  // `sorted`.
  std::vector<TileList> lists;
  std::int64_t tiles = 0;  // of a list
  masks::Axes axes;        // batch and head, if masks depend on them
  bool sorted = false;
  bool masked = false;  // whether a mask is to be computed at all
  double blocks = 0;    // of all batches and heads' units
};

}  // namespace attn::engines
