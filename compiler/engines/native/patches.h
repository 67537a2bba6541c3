// Tiles of the two-dimensional neighbourhoods of a grid: positions are y * width + x, which masks
// read as `// width` and `% width`. A tile's queries are a rectangle of the grid and a block's keys
// another one, so that few of a block's scores are hidden.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/engines/native/key_blocks.h"
#include "compiler/engines/native/tiles.h"
#include "compiler/ir/attention.h"
#include "compiler/masks/boxes.h"

namespace attn::engines::native {

// An expression that a kernel has the value of: a part of the places (Place of attn/patches.cuh)
// `row` and `column`.
struct GridValue {
  ir::ExprId expression = 0;
  std::string text;
};

struct Grid {
  std::int64_t width = 0;  // columns of the grid
  std::vector<GridValue> values;
};

// The grid of the masks: `q_idx % W` and `kv_idx % W` of a single constant W, perhaps `// W`, and
// no other quotients and remainders of q_idx or kv_idx. nullopt if there is none, or tiles cannot
// be cut from it: beside lengths, tensors and params in masks, or if W is not a multiple of
// kPatchWidth, rows and keys are not multiples of W, or rows of keys not multiples of kPatchHeight.
std::optional<Grid> grid_of(const ir::Attention& attention);

// Tiles like `tile`, which must have blocks of kPatchWidth * kPatchHeight keys and no captured
// table, with queries that are a patch. None if a tensor map cannot describe the queries.
std::vector<Tile> patch_tiles(const ir::Attention& attention, const Grid& grid, const Tile& tile);

// Blocks of keys for a tile whose masks show `cells` of kPatchWidth keys: in each strip of cells
// from the first to the last row of the grid that is seen. KeyRun::key is the number of the block's
// first cell, times kCell.
std::vector<KeyRun> patches_of(const std::vector<masks::Block>& cells, std::int64_t grid_width);

}  // namespace attn::engines::native
