#include "compiler/engines/native/tiles.h"

#include <algorithm>
#include <span>

#include "compiler/engines/native/expressions.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/ir/cache_scales.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

constexpr std::int64_t kMostPack = 8, kMostPackOfFewRows = 64;
constexpr std::int64_t kMostShared = 227 << 10;

// Measured on an H200, all but spare ones and those of one warp group. Those with one warp group
// are for few rows, as in decoding: memory is the limit, and they have the most bytes on their way.
// Where expressions take so many registers that a kernel spills, it is refused, and the next is
// taken.
struct Row {
  std::int64_t most_depth, most_width;
  std::int64_t groups, keys, stages, queries;
  double rate;
  TileUse use = TileUse::any;
  std::int64_t shares = 1;
};
constexpr TileUse kSpare = TileUse::spare, kFitting = TileUse::fitting;
constexpr Row kTable[] = {
    {64, 64, 3, 128, 2, 2, 1.03},
    {64, 64, 3, 112, 2, 2, 1.0},
    {64, 64, 2, 128, 2, 2, 0.855},
    {64, 64, 2, 224, 2, 1, 0.945, kFitting},
    {64, 64, 2, 208, 2, 2, 0.885, kFitting},
    {64, 64, 2, 192, 2, 2, 0.885, kFitting},
    {64, 64, 2, 176, 2, 2, 0.885, kFitting},
    {64, 64, 2, 144, 2, 2, 0.845, kFitting},
    {64, 64, 2, 112, 2, 2, 0.845, kFitting},
    {64, 64, 2, 64, 2, 2, 0.7, kSpare},
    {64, 64, 1, 128, 6, 2, 0.6},

    {96, 96, 3, 96, 3, 2, 1.0},
    {96, 96, 2, 128, 3, 2, 0.96},
    {96, 96, 2, 64, 3, 2, 0.8, kSpare},
    {96, 96, 1, 128, 4, 1, 0.6},

    {128, 128, 3, 80, 3, 1, 1.0},
    {128, 128, 2, 144, 2, 2, 0.96},
    {128, 128, 2, 128, 2, 2, 0.96},
    {128, 128, 2, 64, 3, 2, 0.8, kSpare},
    {128, 128, 1, 128, 3, 2, 0.6},

    {160, 160, 2, 128, 2, 1, 1.0},
    {160, 160, 2, 64, 3, 1, 0.8, kSpare},
    {160, 160, 1, 64, 4, 2, 0.6},

    {192, 128, 2, 112, 2, 1, 1.0},
    {192, 128, 2, 64, 2, 1, 0.8, kSpare},
    {192, 128, 1, 64, 4, 2, 0.6},

    {192, 192, 2, 96, 2, 1, 1.0},
    {192, 192, 2, 64, 2, 1, 0.8, kSpare},
    {192, 192, 1, 64, 4, 1, 0.6},

    {224, 224, 2, 96, 2, 1, 1.0},
    {224, 224, 2, 80, 2, 1, 0.98},
    {224, 224, 2, 64, 2, 1, 0.8, kSpare},
    {224, 224, 1, 48, 4, 1, 0.6},

    {256, 256, 2, 80, 2, 1, 1.0},
    {256, 256, 2, 64, 2, 1, 0.97},
    {256, 256, 1, 48, 4, 1, 0.6},

    {576, 256, 1, 48, 2, 1, 1.0},
    {320, 320, 1, 64, 2, 1, 1.0, TileUse::any, 2},
    {384, 384, 1, 48, 2, 1, 1.0, TileUse::any, 2},
    {576, 512, 1, 32, 2, 1, 1.0, TileUse::any, 2},
};

// Tiles of values that are a part of k, above a depth of 384: others are those of kTable. Each has
// as many stages as there is room for, three at least.
constexpr Row kTableOfLatent[] = {
    {576, 256, 1, 32, 3, 1, 1.0},
    {576, 512, 1, 32, 3, 1, 1.0, TileUse::any, 2},
};
// Keys of three warp groups whose scores, of more than 32 columns, leave no registers for a table
// or random numbers.
constexpr std::int64_t kMostOfThreeGroups = 128;
constexpr std::int64_t kLeastDepthOfLatent = 385, kLeastStages = 3, kMostStages = 8;

// Tiles of 8-bit floats; measured on an H100.
constexpr Row kTableOf8Bits[] = {
    {64, 64, 3, 160, 3, 2, 1.0},           {64, 64, 2, 256, 3, 2, 1.0},
    {64, 64, 3, 128, 3, 2, 0.99},          {64, 64, 2, 128, 4, 2, 0.88},
    {64, 64, 2, 64, 4, 2, 0.7, kSpare},    {64, 64, 1, 128, 6, 2, 0.6},

    {96, 96, 3, 128, 3, 2, 1.0},           {96, 96, 2, 224, 3, 2, 0.91},
    {96, 96, 2, 128, 4, 2, 0.85},          {96, 96, 2, 64, 4, 2, 0.7, kSpare},
    {96, 96, 1, 128, 5, 2, 0.6},

    {128, 128, 3, 96, 4, 2, 1.0},          {128, 128, 2, 192, 3, 2, 0.97},
    {128, 128, 2, 224, 3, 2, 0.965},       {128, 128, 2, 128, 4, 2, 0.88},
    {128, 128, 2, 64, 4, 2, 0.7, kSpare},  {128, 128, 1, 128, 5, 2, 0.6},

    {192, 128, 2, 192, 2, 1, 1.0},         {192, 128, 2, 160, 3, 1, 0.96},
    {192, 128, 2, 128, 3, 2, 0.93},        {192, 128, 2, 64, 4, 2, 0.75, kSpare},
    {192, 128, 1, 128, 4, 2, 0.6},

    {192, 192, 2, 160, 2, 1, 1.0},         {192, 192, 2, 128, 3, 1, 1.0},
    {192, 192, 2, 64, 4, 2, 0.75, kSpare}, {192, 192, 1, 128, 3, 2, 0.6},

    {256, 256, 2, 96, 3, 1, 1.0},          {256, 256, 2, 64, 4, 1, 0.89},
    {256, 256, 1, 64, 4, 2, 0.6},
};

// Tiles whose keys and values are widened from 8 bits. Rates of two warp groups are 0.72 of those
// of kTable, as measured at 128 (causal, 8192 keys: 0.69); those of one are not fitted.
constexpr Row kTableOfWidened[] = {
    {64, 64, 2, 128, 2, 2, 0.72},
    {64, 64, 2, 64, 2, 2, 0.58, kSpare},
    {64, 64, 1, 128, 3, 2, 0.6},

    {96, 96, 2, 128, 2, 1, 0.72},
    {96, 96, 2, 64, 2, 2, 0.58, kSpare},
    {96, 96, 1, 96, 3, 2, 0.6},

    {128, 128, 2, 96, 2, 1, 0.72},
    {128, 128, 2, 80, 2, 1, 0.68},
    {128, 128, 2, 64, 2, 1, 0.58, kSpare},
    {128, 128, 1, 96, 3, 1, 0.6},
    {128, 128, 1, 64, 3, 2, 0.55, kSpare},

    {192, 128, 2, 80, 2, 1, 0.72},
    {192, 128, 2, 64, 2, 1, 0.58, kSpare},
    {192, 128, 1, 64, 3, 1, 0.6},

    {192, 192, 2, 64, 2, 1, 0.72},
    {192, 192, 1, 64, 3, 1, 0.6},

    {256, 256, 2, 48, 2, 1, 0.72},
    {256, 256, 1, 48, 3, 1, 0.6},
};

std::int64_t rounded(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// So that few columns are not used.
std::int64_t panel_of(std::int64_t columns, std::int64_t element) {
  const std::int64_t most = 2 * kPanel / element, least = 2 * kSmallPanel / element;
  const std::int64_t rest = columns % most;
  return rest == 0 || rest > least ? most : least;
}

// Measured with a bias: read by plain loads; with one stage of it; and where three warp groups read
// it.
constexpr double kRateOfPlainLoads = 0.6, kRateOfOneStage = 0.75, kRateOfThreeGroups = 0.9;

std::span<const Row> table_of(const ir::Attention& attention, std::int64_t depth) {
  if (attention.cache) return kTableOfWidened;
  if (attention.quantize) return kTableOf8Bits;
  if (attention.values_of_keys && depth >= kLeastDepthOfLatent) return kTableOfLatent;
  return kTable;
}

// Gives the tile as many stages of keys that hold values as there is room for; whether these are
// enough.
bool has_stages(Tile& tile) {
  tile.stages = kLeastStages;
  while (tile.stages <= kMostStages && tile.shared_bytes() <= kMostShared) ++tile.stages;
  return --tile.stages >= kLeastStages;
}

// Whether the tile has room, for as many stages of a table as fit rather than queries of the next
// tile.
bool has_room(Tile& tile) {
  constexpr std::int64_t kStagesAndQueries[][2] = {{2, 2}, {2, 1}, {1, 2}, {1, 1}};
  const std::int64_t queries = tile.queries;
  for (const auto [stages, most] : kStagesAndQueries) {
    tile.tables = stages, tile.queries = std::min(queries, most);
    if (tile.shared_bytes() <= kMostShared) return true;
  }
  tile.queries = queries;
  return false;
}

// A table of f32, which is large, may take keys from a block.
void add_table(Tile& tile, const Table& table) {
  constexpr std::int64_t kLeastKeys = 96;
  const Tile without = tile;
  tile.table_pack = table.pack(tile.pack), tile.table_element = table.element;
  while (!has_room(tile)) {
    tile.keys -= tile.cell;
    if (table.element == 4 && tile.keys >= kLeastKeys) continue;
    tile = without;
    tile.rate *= kRateOfPlainLoads;
    return;
  }
  if (tile.tables == 1) tile.rate *= kRateOfOneStage;
  if (tile.groups == 3) tile.rate *= kRateOfThreeGroups;
}

}  // namespace

// More share one where rows are few.
std::int64_t pack_of(const Tile& tile, std::int64_t group, std::int64_t rows) {
  const std::int64_t most = rows * kMostPack <= tile.rows()
                                ? std::min(kMostPackOfFewRows, tile.rows() / rows)
                                : kMostPack;
  for (std::int64_t pack = std::min(group, most); pack > 1; --pack) {
    if (group % pack == 0 && tile.rows() % pack == 0) return pack;
  }
  return 1;
}

bool clears_values(const ir::Attention& attention) {
  const ir::LayoutKind kind = layout_of(attention, "v").kind;
  return !attention.quantize && !attention.cache && !has_formatted_rows(attention, "k") &&
         kind != ir::LayoutKind::thd &&
         (attention.lengths_kv || kind == ir::LayoutKind::paged || has_padded_keys(attention));
}

// Bytes of Stages (attn/forward_stages.cuh), and what aligns them.
std::int64_t Tile::shared_bytes() const {
  const std::int64_t of_values = values_of_keys ? 0
                                 : element == 1 ? width * rounded(keys, width_panel())
                                                : keys * width;
  const std::int64_t elements =
      (queries * rows() + stages * keys) * rounded(depth, depth_panel()) + stages * of_values;
  return alignment() + element * elements + tables * table_bytes() + handed() * handed_bytes() +
         16 * (queries + (values_of_keys ? 1 : 2) * stages + tables + handed()) +
         (clears_values ? tail_bytes(stages) : 0) + 8 * queries + 4 * stages + 8 +
         (token_scales ? 2 * 4 * stages * keys : 0);
}

std::int64_t Tile::table_bytes() const {
  const std::int64_t rows = rounded(rows_of_head() * table_pack, 8);
  if (walks) return rows * 2 * rounded(held_columns, kPanel);
  return rows * (table_element == 4 ? 4 * table_columns() : 2 * rounded(keys, kPanel));
}

std::int64_t Tile::handed() const { return shares == 1 ? 0 : values_of_keys ? 1 : 2; }

std::int64_t Tile::handed_bytes() const { return (keys / 4 + 7) * 128 * 4; }

std::int64_t Tile::depth_panel() const { return panel_of(depth, element); }

std::int64_t Tile::width_panel() const {
  return values_of_keys ? depth_panel() : panel_of(element == 1 ? keys : width, element);
}

// All of them, if a thread has room for its words of queries, of scores, of weights, and of o.
std::int64_t Tile::held_queries() const {
  constexpr std::int64_t kMostWords = 168;
  if (!of_warps) return 0;
  const std::int64_t words = depth / 4 + keys / 2 + keys / 4 + width / 2;
  return strips * words <= kMostWords ? depth / 16 : held;
}

std::int64_t Tile::share() const { return shares == 1 ? width : rounded(width / 2, kPanel); }

std::vector<Tile> tiles_for(const ir::Attention& attention, bool by_head,
                            const std::optional<Table>& table) {
  const ir::Dims& d = attention.dims;
  const auto element = static_cast<std::int64_t>(size_of(attention.dtype));
  const std::int64_t depth = rounded(d[Dim::Dqk], kStepBytes / element);
  const std::int64_t width = rounded(d[Dim::Dv], kSmallPanel);
  std::vector<Tile> tiles;
  std::int64_t most_depth = 0, most_width = 0;
  for (const Row& row : table_of(attention, depth)) {
    if (row.most_depth < depth || row.most_width < width) continue;
    if (!tiles.empty() && (row.most_depth != most_depth || row.most_width != most_width)) break;
    most_depth = row.most_depth, most_width = row.most_width;
    Tile tile{row.groups, row.keys, row.stages, row.queries, depth, width};
    tile.rate = row.rate, tile.use = row.use, tile.shares = row.shares;
    tile.element = element, tile.clears_values = clears_values(attention);
    tile.values_of_keys = attention.values_of_keys;
    if (attention.is_random()) {  // what blocks lose of their keys, they lose of their rate
      tile.cell = kRandomCell;
      tile.keys = row.keys / kRandomCell * kRandomCell;
      tile.rate *= static_cast<double>(tile.keys) / static_cast<double>(row.keys);
    }
    const auto alike = std::ranges::find_if(tiles, [&tile](const Tile& other) {
      return other.groups == tile.groups && other.keys == tile.keys && other.stages == tile.stages;
    });
    if (alike != tiles.end()) {
      alike->rate = std::max(alike->rate, tile.rate);
      continue;
    }
    if (!by_head) tile.pack = pack_of(tile, d[Dim::Hq] / d[Dim::Hkv], d[Dim::Sq]);
    if (tile.values_of_keys && !has_stages(tile)) continue;
    tile.token_scales = has_token_scales(attention);
    // Where several warp groups compute, registers are for one group that holds one block.
    if (attention.cache) tile.wideners = tile.groups == 1 ? 2 : 1;
    if (has_formatted_rows(attention, "k")) tile.wideners = 1;
    if (table) add_table(tile, *table);
    if (tile.shared_bytes() <= kMostShared) tiles.push_back(tile);
  }
  return tiles;
}

}  // namespace attn::engines::native
