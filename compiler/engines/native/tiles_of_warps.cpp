// Tiles of kernels whose products are those of warps (attn/mma_forward.cuh).
#include <algorithm>
#include <numeric>

#include "compiler/engines/native/tiles.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/ir/cache_scales.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

// Measured on an H200 alone. What a warp reads of keys and values serves 32 rows where registers
// suffice (`strips`); then two blocks of threads of four warps share a multiprocessor. As many
// stages are taken as fit, from `most` down to `least`. Tiles of one group are for few rows.
// `held`: 16 columns of queries that stay in registers although not all can.
struct WarpRow {
  std::int64_t most_depth, most_width;
  std::int64_t groups, strips, keys;
  std::int64_t least, most;  // stages
  std::int64_t resident;
  double rate;
  bool spare = false;
  std::int64_t held = 0;
};
constexpr WarpRow kTilesOfWarps[] = {
    {64, 64, 2, 2, 96, 1, 2, 2, 0.89},
    {64, 64, 2, 2, 64, 1, 2, 2, 0.87},
    {64, 64, 2, 1, 64, 2, 2, 1, 0.76},
    {64, 64, 2, 1, 32, 2, 2, 1, 0.55, true},
    {64, 64, 1, 1, 64, 2, 4, 2, 0.55},

    {128, 128, 2, 2, 64, 1, 2, 2, 0.75},
    {128, 128, 2, 2, 48, 1, 2, 2, 0.71},
    {128, 128, 2, 2, 32, 1, 2, 2, 0.64},
    {128, 128, 2, 1, 64, 2, 3, 1, 0.56},
    {128, 128, 2, 1, 32, 2, 3, 1, 0.47, true},
    {128, 128, 1, 1, 64, 2, 4, 2, 0.47},
    {128, 128, 1, 1, 64, 2, 4, 1, 0.42},

    {192, 128, 2, 1, 64, 2, 3, 1, 0.63},
    {192, 128, 2, 1, 32, 2, 3, 1, 0.54},
    {192, 128, 1, 1, 32, 2, 4, 2, 0.45},
    {192, 128, 1, 1, 32, 2, 4, 1, 0.41},

    {256, 256, 2, 1, 64, 2, 2, 1, 0.58, false, 8},
    {256, 256, 2, 1, 64, 2, 2, 1, 0.56},
    {256, 256, 2, 1, 48, 2, 2, 1, 0.52},
    {256, 256, 2, 1, 32, 2, 2, 1, 0.48},
    {256, 256, 1, 1, 32, 2, 4, 2, 0.4},
    {256, 256, 1, 1, 32, 2, 4, 1, 0.36},
    {256, 256, 1, 1, 16, 2, 4, 1, 0.24, true},
};

// Tiles of kernels that walk items. A held table takes no copies of blocks, which is what others
// wait for. An H200 measured the first of each head dimension.
struct WalkingRow {
  std::int64_t most;  // Dqk, Dv
  std::int64_t groups, strips, keys, resident;
  double rate, rate_with_table;
};
constexpr WalkingRow kWalkingTiles[] = {
    {32, 1, 1, 64, 4, 0.5, 1.15},  {32, 1, 1, 64, 3, 0.46, 1},    {32, 2, 2, 64, 2, 0.48, 1},
    {32, 1, 1, 64, 2, 0.37, 0.8},  {64, 1, 1, 64, 3, 0.45, 0.78}, {64, 2, 2, 64, 2, 0.48, 0.78},
    {64, 1, 1, 64, 2, 0.38, 0.68},
};

// Rates of 8-bit rows that are loaded by 4 or 8 bytes, and of elements that are loaded one by one.
constexpr double kRateOfWidening = 0.85, kRateOfElements = 0.5;

// Adjacent elements of rows of "q", "k" or "v" that are read at once (RowFormat::kVector).
std::int64_t vector_of(const ir::Attention& attention, const char* name) {
  const auto [batch, head, row, column] = stored_strides(attention, name);
  if (column != 1) return 1;
  return std::gcd(std::gcd(std::gcd(batch, head), std::gcd(row, logical_dims(attention, name)[3])),
                  std::int64_t{8});
}

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// The tile of a row, with as many stages as shared memory has room for; none with too few.
std::optional<Tile> tile_of(const WarpRow& row, const ir::Attention& attention, bool by_head,
                            std::int64_t most_shared) {
  const ir::Dims& d = attention.dims;
  Tile tile{row.groups, row.keys, row.most, 1};
  tile.depth = round_up(d[Dim::Dqk], 16), tile.width = round_up(d[Dim::Dv], kSmallPanel);
  tile.rate = row.rate * rate_of_copies(attention),
  tile.use = row.spare ? TileUse::spare : TileUse::any, tile.of_warps = true;
  tile.strips = row.strips, tile.resident = row.resident;
  tile.held = std::min(row.held, tile.depth / 16);
  tile.token_scales = ir::has_token_scales(attention);
  tile.clears_values = clears_values(attention);
  if (attention.is_random()) {
    tile.cell = kRandomCell;
    tile.keys = std::max(kRandomCell, row.keys / kRandomCell * kRandomCell);
  }
  if (!by_head) tile.pack = pack_of(tile, d[Dim::Hq] / d[Dim::Hkv], d[Dim::Sq]);
  while (tile.shared_bytes() > room_of(row.resident, most_shared)) {
    if (--tile.stages < row.least) return std::nullopt;
  }
  return tile;
}

Tile tile_of(const WalkingRow& row, const ir::Attention& attention,
             const std::optional<Table>& table) {
  const ir::Dims& d = attention.dims;
  Tile tile{row.groups, row.keys, 2, 2};
  tile.depth = round_up(d[Dim::Dqk], 16), tile.width = round_up(d[Dim::Dv], kSmallPanel);
  tile.of_warps = tile.walks = true;
  tile.strips = row.strips, tile.resident = row.resident;
  tile.rate = (table ? row.rate_with_table : row.rate) * rate_of_copies(attention);
  tile.clears_values = clears_values(attention);
  if (attention.is_random()) tile.cell = kRandomCell;
  if (table) tile.tables = 1, tile.held_columns = d[Dim::Skv];
  return tile;
}

}  // namespace

double rate_of_copies(const ir::Attention& attention) {
  double rate = 1;
  for (const char* name : {"q", "k", "v"}) {
    if (attention.values_of_keys && name == std::string_view("v")) continue;
    const std::int64_t vector = vector_of(attention, name);
    const bool is_narrow = size_of(attention.dtype_of(name)) == 1;
    if (vector < (is_narrow ? 4 : 2)) return kRateOfElements;
    if (is_narrow) rate = kRateOfWidening;
  }
  return rate;
}

std::int64_t room_of(std::int64_t resident, std::int64_t most_shared) {
  constexpr std::int64_t kReserved = 1024;  // bytes of each block of threads
  return (most_shared + kReserved) / resident - kReserved;
}

std::vector<Tile> walking_tiles(const ir::Attention& attention, const std::optional<Table>& table,
                                std::int64_t most_shared) {
  const ir::Dims& d = attention.dims;
  std::vector<Tile> tiles;
  std::int64_t most = 0;
  for (const WalkingRow& row : kWalkingTiles) {
    if (row.most < std::max(d[Dim::Dqk], d[Dim::Dv]) || (most != 0 && row.most != most)) continue;
    // Rows that a tile of fewer would have, too.
    if (row.groups > 1 && d[Dim::Sq] <= kGroup) continue;
    const Tile tile = tile_of(row, attention, table);
    if (tile.shared_bytes() > room_of(row.resident, most_shared)) continue;
    most = row.most;
    tiles.push_back(tile);
  }
  return tiles;
}

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
      return other.groups == tile->groups && other.keys == tile->keys &&
             other.strips == tile->strips && other.held == tile->held;
    });
    if (is_new) tiles.push_back(*tile);
  }
  return tiles;
}

}  // namespace attn::engines::native
