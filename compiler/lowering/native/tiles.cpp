#include "compiler/lowering/native/tiles.h"

#include <algorithm>

namespace attn::lowering::native {
namespace {

using ir::Dim;

constexpr std::int64_t kMostPack = 8;
// Of tiles for random dropout of modified scores, which otherwise spill.
constexpr std::int64_t kWidthWithRandom = 128, kKeysWithRandom = 96;
constexpr std::int64_t kRandomCell = 32;  // keys that the generator of dropout numbers together
constexpr std::int64_t kMostShared = 227 << 10;

// Measured on an H200, all but spare ones and those of one warp group. Those that are `tight` have
// registers for plain expressions only. Those with one warp group are for few rows, as in decoding:
// memory is the limit, and they have the most bytes on their way.
struct Row {
  std::int64_t most_depth, most_width;
  std::int64_t groups, keys, stages, queries;
  double rate;
  bool tight;
  bool spare = false;
};
constexpr Row kTable[] = {
    {64, 64, 3, 112, 2, 2, 1.0, true},                                              //
    {64, 64, 2, 128, 2, 2, 0.96, false},                                            //
    {64, 64, 2, 64, 2, 2, 0.8, false, true},   {64, 64, 1, 128, 6, 2, 0.6, false},  //
    {128, 128, 3, 80, 3, 1, 1.0, true},                                             //
    {128, 128, 2, 128, 2, 2, 0.96, false},     {128, 128, 2, 64, 3, 2, 0.8, false, true},
    {128, 128, 1, 128, 3, 2, 0.6, false},                                            //
    {192, 128, 2, 112, 2, 1, 1.0, false},                                            //
    {192, 128, 2, 64, 2, 1, 0.8, false, true}, {192, 128, 1, 64, 4, 2, 0.6, false},  //
    {192, 192, 2, 96, 2, 1, 1.0, false},                                             //
    {192, 192, 2, 64, 2, 1, 0.8, false, true}, {192, 192, 1, 64, 4, 1, 0.6, false},  //
    {256, 256, 2, 80, 2, 1, 1.0, true},                                              //
    {256, 256, 2, 64, 2, 1, 0.97, false},                                            //
    {256, 256, 1, 64, 3, 1, 0.6, false},
};

std::int64_t panels(std::int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

// The most heads of a group whose rows fill a tile.
std::int64_t pack_of(const Tile& tile, std::int64_t group) {
  for (std::int64_t pack = std::min(group, kMostPack); pack > 1; --pack) {
    if (group % pack == 0 && tile.rows() % pack == 0) return pack;
  }
  return 1;
}

constexpr double kRateOfPlainLoads = 0.6;  // measured with a bias [S, S]

// With as many stages of a table as fit, rather than queries of the next tile.
void add_table(Tile& tile, const Table& table) {
  constexpr std::int64_t kStagesAndQueries[][2] = {{2, 2}, {2, 1}, {1, 2}, {1, 1}};
  const std::int64_t queries = tile.queries;
  tile.table_pack = table.pack(tile.pack);
  for (const auto [stages, most] : kStagesAndQueries) {
    tile.tables = stages, tile.queries = std::min(queries, most);
    if (tile.shared_bytes() <= kMostShared) return;
  }
  tile.tables = 0, tile.table_pack = 1, tile.queries = queries;
  tile.rate *= kRateOfPlainLoads;
}

}  // namespace

// As Stages of attn/forward.cuh, aligned to 1024 bytes.
std::int64_t Tile::shared_bytes() const {
  const std::int64_t elements = queries * rows() * depth + stages * keys * (depth + width);
  return 1024 + 2 * elements + tables * table_bytes() + 16 * (queries + 2 * stages + tables) +
         8 * queries + 4 * stages;
}

std::int64_t Tile::table_bytes() const { return 2 * panels(keys) * rows_of_head() * table_pack; }

std::vector<Tile> tiles_for(const ir::Attention& attention, bool plain, bool by_head,
                            const std::optional<Table>& table) {
  const ir::Dims& d = attention.dims;
  const std::int64_t depth = panels(d[Dim::Dqk]), width = panels(d[Dim::Dv]);
  std::vector<Tile> tiles;
  std::int64_t most_depth = 0, most_width = 0;
  for (const Row& row : kTable) {
    if (row.most_depth < depth || row.most_width < width) continue;
    if (!tiles.empty() && (row.most_depth != most_depth || row.most_width != most_width)) break;
    most_depth = row.most_depth, most_width = row.most_width;
    if (row.tight && !plain) continue;
    Tile tile{row.groups, row.keys, row.stages, row.queries, depth, width};
    tile.rate = row.rate, tile.spare = row.spare;
    if (attention.is_random()) {
      tile.cell = kRandomCell;
      const bool full = !plain && tile.width == kWidthWithRandom;
      tile.keys =
          (full ? std::min(tile.keys, kKeysWithRandom) : tile.keys) / kRandomCell * kRandomCell;
    }
    if (!by_head) tile.pack = pack_of(tile, d[Dim::Hq] / d[Dim::Hkv]);
    if (table) add_table(tile, *table);
    if (tile.shared_bytes() <= kMostShared) tiles.push_back(tile);
  }
  return tiles;
}

}  // namespace attn::lowering::native
