#include "compiler/engines/native/key_blocks.h"

#include <algorithm>
#include <utility>

#include "compiler/engines/native/lister.h"
#include "compiler/engines/native/patches.h"
#include "runtime/base/ceil_div.h"

namespace attn::engines::native {
namespace {

using ir::Dim;
using masks::Block;

// What all rows of the grid that the tile has a part of see together.
std::vector<Block> cells_of_patch(const Stretches& stretches, std::int64_t tile, std::int64_t cells,
                                  const Patch& patch) {
  const std::int64_t across = patch.grid / patch.width;
  const std::int64_t first = tile / across * patch.height * across + tile % across;
  std::vector<Block> seen(static_cast<std::size_t>(cells));
  std::vector<std::int64_t> full(seen.size());  // rows
  for (std::int64_t row = 0; row < patch.height; ++row) {
    for (const CellRun& stretch : stretches[static_cast<std::size_t>(first + row * across)]) {
      for (auto i = static_cast<std::size_t>(stretch.first);
           i <= static_cast<std::size_t>(stretch.last); ++i) {
        full[i] += stretch.block == Block::full ? 1 : 0;
        seen[i] = full[i] == patch.height ? Block::full : Block::partial;
      }
    }
  }
  return seen;
}

}  // namespace

Result<KeyBlocks> key_blocks(const ir::Attention& attention, const masks::Axes& mask_axes,
                             const Tile& tile, target::Deadline* deadline) {
  const ir::Dims& dims = attention.dims;
  // Patches have rows of queries next to each other and cells of keys next to each other in the
  // grid.
  const std::int64_t cell = tile.patch ? kPatchWidth : tile.cell;
  const std::int64_t cells = ceil_div(dims[Dim::Skv], cell);
  const Listing listing{.tiles = ceil_div(dims[Dim::Sq], tile.rows_of_head()),
                        .rows = tile.patch ? tile.patch->width : tile.rows_of_head(),
                        .columns = cell,
                        .units = dims[Dim::B] * dims[Dim::Hq] / tile.pack,
                        .least = 1,
                        .deadline = deadline};
  ATTN_ASSIGN(
      KeyBlocks made,
      listed_blocks(attention, mask_axes, listing, [&](Stretches& stretches, std::int64_t t) {
        if (tile.patch) {
          return patches_of(cells_of_patch(stretches, t, cells, *tile.patch), tile.patch->grid);
        }
        return runs_of(joined(std::move(stretches[static_cast<std::size_t>(t)])), cells, tile.keys,
                       tile.cell);
      }));
  // Lengths may leave a tile without blocks: it computes one, whose scores masks may hide.
  made.masked |= attention.lengths_kv && !attention.masks.empty();
  return made;
}

std::optional<plan::BlockCounts> counts_of(const KeyBlocks& blocks, std::int64_t streamed) {
  if (blocks.lists.empty()) return std::nullopt;
  const auto tiles = static_cast<std::int64_t>(blocks.lists.size());
  plan::BlockCounts counts{.lists = ceil_div(tiles, blocks.tiles)};
  for (const TileList& list : blocks.lists) {
    for (std::int64_t i = list.first; i < list.first + list.runs; ++i) {
      const KeyRun& run = blocks.runs[static_cast<std::size_t>(i)];
      (run.masked ? counts.partial : counts.full) += run.blocks;
    }
  }
  counts.skipped = std::max<std::int64_t>(0, tiles * streamed - counts.full - counts.partial);
  return counts;
}

}  // namespace attn::engines::native
