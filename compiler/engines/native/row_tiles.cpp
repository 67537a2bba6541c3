#include "compiler/engines/native/row_tiles.h"

#include <algorithm>
#include <functional>

#include "compiler/engines/native/expressions.h"
#include "compiler/engines/native/narrow_backward.h"
#include "compiler/engines/native/skeleton.h"
#include "compiler/engines/native/tiles.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/target/capabilities.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

std::int64_t whole(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// Whether rows are cleared, as kClears of BackwardStages says.
bool clears_rows(const ir::Attention& attention) {
  const auto is_packed = [&](const char* name) {
    return layout_of(attention, name).kind == ir::LayoutKind::thd;
  };
  constexpr const char* kCopied[] = {"q", "k", "v", "do"};
  return (attention.lengths_q || attention.lengths_kv || has_padding(attention)) &&
         !std::ranges::all_of(kCopied, is_packed);
}

// Bytes of BackwardStages (attn/backward_stages.cuh).
std::int64_t bytes_of_groups(const ir::Attention& attention, const RowTile& tile, bool table,
                             bool diagonals) {
  const std::int64_t of_keys = 2 * tile.keys * (tile.depth + tile.width);
  const std::int64_t of_scores = table ? 2 * tile.keys : tile.keys;
  const std::int64_t of_rows =
      2 * tile.rows * (tile.depth + tile.width + of_scores) + 8 * tile.rows;
  const std::int64_t of_random = attention.is_random() ? 4 * (16 * tile.keys + 16) : 0;
  const std::int64_t of_diagonals = diagonals ? tile.keys / 16 * 32 * (tile.rows + 8) : 0;
  return of_keys + tile.stages * of_rows + 4 * tile.rows * tile.depth + of_random + of_diagonals +
         (clears_rows(attention) ? tail_bytes(2 + 2 * tile.stages) : 0) + 16 * 9 + 64 + 16 * 8;
}

// Bytes of those of attn/mma_backward_stages.cuh.
std::int64_t bytes_of_warps(const ir::Attention& attention, const RowTile& tile, bool table,
                            bool diagonals) {
  const std::int64_t depth = whole(tile.depth, tile.depth_panel());
  const std::int64_t width = whole(tile.width, tile.width_panel());
  const std::int64_t of_rows = 2 * tile.rows * (depth + width) + 8 * tile.rows;
  const std::int64_t matrices = (tile.row_groups > 1 ? 2 : 1) + (table ? 1 : 0);  // of scores
  const std::int64_t of_random = attention.is_random() ? 2 * 16 * whole(tile.keys, 64) : 0;
  const std::int64_t of_diagonals =
      diagonals ? tile.warps() * 32 * (tile.rows / tile.row_groups + 8) : 0;
  const std::int64_t key_stages = tile.is_short ? tile.stages : 1;
  const std::int64_t of_outputs =
      tile.is_short ? tile.stages * 2 * tile.rows * width + 4 * tile.rows : 0;  // and deltas
  return key_stages * 2 * tile.keys * (depth + width) + tile.stages * of_rows + of_outputs +
         2 * matrices * tile.rows * tile.keys + of_random + 64 + 16 * 4 + 16 + of_diagonals;
}

// Up to 128 columns, registers hold the sums of 128 keys. Above, both warp groups share 64, and
// there are six products rather than five. With 64 columns, registers hold scores of 128 rows, of
// which products read less shared memory, but not what random numbers keep of them. The rates of 48
// and 32 rows are not measured.
std::vector<RowTile> row_tiles_of_groups(const ir::Dims& dims, bool is_random) {
  const std::int64_t depth = whole(dims[Dim::Dqk], kPanel);
  const std::int64_t width = whole(dims[Dim::Dv], kPanel);
  const bool wide = std::max(depth, width) > 128;
  const std::int64_t keys = wide ? 64 : 128;
  const double best = wide ? 0.72 : 1;
  std::vector<RowTile> tiles = {{64, keys, best, depth, width},
                                {48, keys, 0.9 * best, depth, width},
                                {32, keys, 0.7 * best, depth, width}};
  // Warp groups that divide 64 columns of dq by rows need multiples of 32.
  if (depth == 64 && !wide) tiles.erase(tiles.begin() + 1);
  if (depth == 64 && width == 64 && !is_random)
    tiles.insert(tiles.begin(), {kMostRowsOfBlock, keys, 1.19, depth, width});
  return tiles;
}

// Measured on an H200 alone, but for those of 0.75 and less. With two row groups, registers hold
// half of the columns of dk and dv: for large head dimensions, and for expressions that take many.
// The first ones hold keys and values where registers are left for them.
struct TileOfWarps {
  std::int64_t most;  // Dqk, Dv
  std::int64_t rows, keys, stages, row_groups, resident;
  double rate;
  std::int64_t held_keys = 0, held_values = 0;
};
constexpr TileOfWarps kRowTilesOfWarps[] = {
    {64, 64, 64, 2, 1, 3, 0.83},         {64, 64, 64, 1, 1, 3, 0.83},
    {64, 64, 128, 2, 1, 1, 0.78},        {64, 64, 64, 2, 1, 2, 0.71},
    {64, 64, 64, 1, 1, 2, 0.71},         {64, 32, 128, 2, 1, 1, 0.7},
    {64, 64, 64, 2, 2, 1, 0.62},         {64, 32, 64, 2, 2, 1, 0.5},

    {96, 64, 128, 2, 1, 1, 0.62, 6, 6},  {96, 64, 128, 2, 1, 1, 0.61},
    {96, 64, 64, 1, 1, 2, 0.61},         {96, 64, 128, 1, 1, 1, 0.56},
    {96, 32, 128, 2, 1, 1, 0.55},        {96, 32, 128, 1, 1, 1, 0.5},
    {96, 64, 64, 2, 2, 1, 0.47},         {96, 64, 64, 1, 2, 1, 0.44},
    {96, 32, 64, 2, 2, 1, 0.38},

    {128, 64, 128, 2, 1, 1, 0.6},        {128, 64, 128, 1, 1, 1, 0.54},
    {128, 32, 128, 2, 1, 1, 0.51},       {128, 32, 128, 1, 1, 1, 0.48},
    {128, 64, 64, 2, 2, 1, 0.45},        {128, 64, 64, 1, 2, 1, 0.42},
    {128, 32, 64, 2, 2, 1, 0.36},

    {192, 64, 64, 2, 2, 1, 0.47, 6, 12}, {192, 64, 64, 2, 2, 1, 0.44},
    {192, 64, 64, 1, 2, 1, 0.42},        {192, 32, 64, 2, 2, 1, 0.37},
    {192, 32, 64, 1, 2, 1, 0.33},        {192, 32, 32, 1, 2, 1, 0.22},

    {256, 64, 64, 2, 2, 1, 0.46},        {256, 64, 64, 1, 2, 1, 0.4},
    {256, 32, 64, 2, 2, 1, 0.37},        {256, 32, 64, 1, 2, 1, 0.34},
    {256, 32, 32, 1, 2, 1, 0.23},
};

std::vector<RowTile> row_tiles_of_warps(const ir::Dims& dims, bool scatters) {
  const std::int64_t most = std::max(dims[Dim::Dqk], dims[Dim::Dv]);
  std::vector<RowTile> tiles;
  std::int64_t of = 0;
  for (const TileOfWarps& row : kRowTilesOfWarps) {
    if (row.most < most || (of != 0 && row.most != of)) continue;
    of = row.most;
    const std::int64_t columns = kSmallPanel * row.row_groups;
    tiles.push_back({row.rows, row.keys, row.rate, whole(dims[Dim::Dqk], columns),
                     whole(dims[Dim::Dv], columns), row.stages, true, row.row_groups, row.resident,
                     scatters, row.held_keys, row.held_values});
  }
  return tiles;
}

// Tiles of kernels of one launch; an H200 measured the first ones of 64 keys, and of 96 with D 64.
// `rate` has what is left of it where a warp has few rows, and where no other block of threads
// hides waits. The fewest keys that are enough are taken.
struct ShortTile {
  std::int64_t most;  // Dqk, Dv
  std::int64_t keys, rows, stages, row_groups, resident;
  double rate;
};
constexpr ShortTile kShortTiles[] = {
    {32, 64, 64, 2, 1, 3, 1},     {32, 64, 32, 2, 1, 4, 0.9},   {32, 64, 64, 2, 1, 2, 0.85},
    {32, 64, 64, 2, 2, 2, 0.8},   {32, 96, 64, 2, 1, 2, 0.8},   {32, 96, 32, 2, 1, 2, 0.68},
    {32, 128, 32, 2, 1, 2, 0.72}, {32, 128, 64, 2, 1, 1, 0.5},  {32, 128, 32, 2, 1, 1, 0.42},

    {64, 64, 64, 2, 1, 2, 1},     {64, 64, 32, 2, 1, 3, 0.9},   {64, 64, 32, 2, 1, 2, 0.85},
    {64, 64, 64, 1, 1, 2, 0.85},  {64, 64, 64, 2, 2, 1, 0.7},   {64, 96, 64, 2, 1, 1, 0.52},
    {64, 96, 32, 2, 1, 1, 0.46},  {64, 128, 64, 2, 1, 1, 0.52}, {64, 128, 32, 2, 1, 1, 0.46},

    {128, 64, 64, 2, 2, 1, 0.8},  {128, 64, 64, 1, 2, 1, 0.7},  {128, 64, 32, 2, 2, 1, 0.65},
    {128, 64, 32, 1, 2, 1, 0.6},  {128, 128, 64, 1, 1, 1, 0.5}, {128, 128, 32, 2, 1, 1, 0.46},
    {128, 128, 32, 1, 1, 1, 0.4},

    {256, 64, 64, 1, 2, 1, 0.7},  {256, 64, 32, 1, 2, 1, 0.6},
};

constexpr double kRateOfSums = 0.4;  // that are added to memory in each step; not measured

RowTile tile_of(const ShortTile& row, const ir::Dims& dims) {
  const std::int64_t columns = kSmallPanel * row.row_groups;
  return {.rows = row.rows,
          .keys = row.keys,
          .rate = row.rate,
          .depth = whole(dims[Dim::Dqk], columns),
          .width = whole(dims[Dim::Dv], columns),
          .stages = row.stages,
          .of_warps = true,
          .row_groups = row.row_groups,
          .resident = row.resident,
          .is_short = true};
}

// Takes what copies of rows cost from the rates of tiles of warps.
void slow_down(const ir::Attention& attention, std::vector<RowTile>& tiles) {
  const double rate = rate_of_copies(attention.quantize ? with_wide_rows(attention) : attention);
  for (RowTile& tile : tiles) {
    if (tile.of_warps) tile.rate *= rate;
  }
}

}  // namespace

std::int64_t room_of(const RowTile& tile, const target::Context& context) {
  return room_of(tile.resident, target::limit(target::Capability::shared_bytes_of_block, context));
}

std::int64_t shared_bytes(const ir::Attention& attention, const RowTile& tile, bool table,
                          bool diagonals) {
  return tile.alignment() + (tile.of_warps ? bytes_of_warps(attention, tile, table, diagonals)
                                           : bytes_of_groups(attention, tile, table, diagonals));
}

std::vector<RowTile> row_tiles(const ir::Attention& attention, const target::Context& context,
                               bool diagonals) {
  if (!context.rewrites.long_forms) return {};
  std::vector<RowTile> tiles =
      has_kernels_of_warps(context)
          ? row_tiles_of_warps(attention.dims,
                               !target::can(target::Capability::vector_sums, context))
          : row_tiles_of_groups(attention.dims, attention.is_random());
  std::erase_if(tiles, [&](const RowTile& tile) {
    return shared_bytes(attention, tile, false, diagonals) > room_of(tile, context);
  });
  slow_down(attention, tiles);
  return tiles;
}

std::int64_t most_short_keys(const ir::Dims& dims) {
  std::int64_t most = 0;
  for (const ShortTile& row : kShortTiles) {
    if (row.most >= std::max(dims[Dim::Dqk], dims[Dim::Dv])) most = std::max(most, row.keys);
  }
  return most;
}

std::vector<RowTile> short_tiles(const ir::Attention& attention, const target::Context& context,
                                 bool diagonals) {
  const ir::Dims& dims = attention.dims;
  const std::int64_t columns = std::max(dims[Dim::Dqk], dims[Dim::Dv]);
  if (!context.rewrites.short_forms || attention.quantize ||
      !check_of_warps(attention, context).ok())
    return {};
  std::vector<RowTile> tiles;
  std::int64_t most = 0, keys = 0;
  for (const ShortTile& row : kShortTiles) {
    if (row.most < columns || row.keys < dims[Dim::Skv]) continue;
    if (!tiles.empty() && (row.most != most || row.keys != keys)) continue;
    const RowTile tile = tile_of(row, dims);
    if (shared_bytes(attention, tile, false, diagonals) > room_of(tile, context)) continue;
    most = row.most, keys = row.keys;
    tiles.push_back(tile);
  }
  slow_down(attention, tiles);
  // Gradients that batches share are summed where a head has one block of rows.
  const bool learns = !gradient::differentiate(attention).tensors.empty();
  const auto rate = [&](const RowTile& tile) {
    return tile.rate * (learns && tile.rows < dims[Dim::Sq] ? kRateOfSums : 1);
  };
  std::ranges::stable_sort(tiles, std::greater(), rate);
  return tiles;
}

}  // namespace attn::engines::native
