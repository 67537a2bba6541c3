// Tiles of kernels whose products are those of warps (attn/mma_forward.cuh).
#include <algorithm>

#include "compiler/engines/native/tiles.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

// Not measured on the GPUs that they are for. Warps read keys and values from shared memory for 16
// rows each, so blocks of threads have as many warps as registers allow: two groups of four. Those
// of one group are for few rows, and for less shared memory. As many stages are taken as fit, up to
// this number.
struct WarpRow {
  std::int64_t most_depth, most_width;
  std::int64_t groups, keys, stages;
  double rate;
  bool spare = false;
};
constexpr WarpRow kTilesOfWarps[] = {
    {64, 64, 2, 128, 2, 0.75},       {64, 64, 2, 64, 2, 0.72},        {64, 64, 1, 64, 4, 0.5},

    {128, 128, 2, 64, 3, 0.75},      {128, 128, 2, 32, 3, 0.6, true}, {128, 128, 1, 64, 4, 0.5},

    {192, 128, 2, 48, 3, 0.7},       {192, 128, 2, 32, 3, 0.6, true}, {192, 128, 1, 32, 4, 0.5},

    {192, 192, 2, 48, 2, 0.7},       {192, 192, 2, 32, 2, 0.6, true}, {192, 192, 1, 32, 4, 0.5},

    {256, 256, 2, 48, 2, 0.7},       {256, 256, 2, 32, 2, 0.6},       {256, 256, 1, 32, 3, 0.5},
    {256, 256, 1, 16, 3, 0.3, true},
};

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// The tile of a row, with as many stages as shared memory has room for; none without two.
std::optional<Tile> tile_of(const WarpRow& row, const ir::Attention& attention, bool by_head,
                            std::int64_t most_shared) {
  const ir::Dims& d = attention.dims;
  Tile tile{row.groups, row.keys, row.stages, 1};
  tile.depth = round_up(d[Dim::Dqk], 16), tile.width = round_up(d[Dim::Dv], kSmallPanel);
  tile.rate = row.rate, tile.spare = row.spare, tile.of_warps = true;
  tile.clears_values = clears_values(attention);
  if (attention.is_random()) {
    tile.cell = kRandomCell;
    tile.keys = std::max(kRandomCell, row.keys / kRandomCell * kRandomCell);
  }
  if (!by_head) tile.pack = pack_of(tile, d[Dim::Hq] / d[Dim::Hkv], d[Dim::Sq]);
  while (tile.shared_bytes() > most_shared) {
    if (--tile.stages < 2) return std::nullopt;
  }
  return tile;
}

}  // namespace

std::vector<Tile> tiles_of_warps(const ir::Attention& attention, bool by_head,
                                 std::int64_t most_shared) {
  const std::int64_t depth = round_up(attention.dims[Dim::Dqk], 16);
  const std::int64_t width = round_up(attention.dims[Dim::Dv], kSmallPanel);
  std::vector<Tile> tiles;
  std::int64_t most_depth = 0, most_width = 0;
  for (const WarpRow& row : kTilesOfWarps) {
    if (row.most_depth < depth || row.most_width < width) continue;
    if (!tiles.empty() && (row.most_depth != most_depth || row.most_width != most_width)) break;
    const std::optional<Tile> tile = tile_of(row, attention, by_head, most_shared);
    if (!tile) continue;
    most_depth = row.most_depth, most_width = row.most_width;
    const bool is_new = std::ranges::none_of(tiles, [&tile](const Tile& other) {
      return other.groups == tile->groups && other.keys == tile->keys;
    });
    if (is_new) tiles.push_back(*tile);
  }
  return tiles;
}

}  // namespace attn::engines::native
