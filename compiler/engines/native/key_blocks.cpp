#include "compiler/engines/native/key_blocks.h"

#include <fmt/format.h>

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

constexpr const char* kListsInTheText =
    "struct Lists {\n"
    "  __device__ kernels::Tile tile(int i) const { return kTiles[i]; }\n"
    "  __device__ kernels::Run run(int i) const { return kRuns[i]; }\n"
    "};\n";
constexpr const char* kListsInMemory =
    "struct Lists {\n"
    "  const kernels::Tile* tiles;\n"
    "  const kernels::Run* runs;\n"
    "  __device__ kernels::Tile tile(int i) const { return tiles[i]; }\n"
    "  __device__ kernels::Run run(int i) const { return runs[i]; }\n"
    "};\n";

std::string array_text(const char* what, const std::vector<std::string>& elements) {
  constexpr std::size_t kOfLine = 6;
  std::string text = fmt::format("static __device__ const kernels::{}[] = {{", what);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    text += i % kOfLine == 0 ? "\n    " : " ";
    text += elements[i] + ",";
  }
  return text + "\n};\n";
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

std::string lists_text(const KeyBlocks& blocks) {
  std::vector<std::string> tiles, runs;
  for (const TileList& list : blocks.lists) {
    tiles.push_back(
        fmt::format("{{{}, {}, {}, {}}}", list.tile, list.first, list.runs, list.blocks));
  }
  for (const KeyRun& run : blocks.runs) {
    runs.push_back(fmt::format("{{{}, {}}}", run.key | (run.masked ? 1 : 0), run.blocks));
  }
  if (runs.empty()) runs.emplace_back("{0, 0}");  // an array has an element
  return array_text("Tile kTiles", tiles) + array_text("Run kRuns", runs) + kListsInTheText;
}

std::string lists_in_memory_text() { return kListsInMemory; }

}  // namespace attn::engines::native
