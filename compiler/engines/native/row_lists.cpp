#include "compiler/engines/native/row_lists.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "compiler/engines/native/lister.h"
#include "compiler/engines/native/tiles.h"
#include "runtime/base/ceil_div.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

// Divides the runs of a list's tiles, one after the other, so that each has one KeyRun::before.
class Ordering {
 public:
  Ordering(std::int64_t cells, std::int64_t rows)
      : rows_(rows), last_(static_cast<std::size_t>(cells), -1) {}

  std::vector<KeyRun> divided(const std::vector<KeyRun>& runs, std::int64_t tile) {
    std::vector<KeyRun> all;
    for (const KeyRun& run : runs) {
      for (std::int64_t i = 0; i < run.blocks; ++i) {
        const std::int64_t row = run.key + i * rows_;
        std::int64_t& last = last_[static_cast<std::size_t>(row / rows_)];
        const std::int64_t before = last < 0 ? 0 : tile - last;
        last = tile;
        if (i == 0 || all.back().before != before) all.push_back({row, 0, run.masked, before});
        ++all.back().blocks;
      }
    }
    return all;
  }

 private:
  const std::int64_t rows_;         // of a block
  std::vector<std::int64_t> last_;  // tile that sees a block of rows; -1: none yet
};

MadeLists sizes_of(const ir::Dims& dims, const KeyBlocks& blocks, const RowTile& tile) {
  return {.lists = (blocks.axes.batch ? dims[Dim::B] : 1) * (blocks.axes.head ? dims[Dim::Hkv] : 1),
          .tiles = blocks.tiles,
          .cells = ceil_div(dims[Dim::Sq], kCell),
          .cells_of_block = tile.rows / kCell};
}

}  // namespace

std::int64_t past_all_rows(const ir::Dims& dims) { return ceil_div(dims[Dim::Sq], kCell) * kCell; }

Result<KeyBlocks> row_blocks(const ir::Attention& attention, const masks::Axes& mask_axes,
                             const RowTile& tile, bool ordered, target::Deadline* deadline) {
  const ir::Dims& dims = attention.dims;
  Tile as_keys;  // whose keys are the rows of a block: runs of rows are found like those of keys
  as_keys.keys = tile.rows;
  if (ordered) as_keys.cell = tile.rows;
  const std::int64_t cells = as_keys.cells_of(dims[Dim::Sq]);
  const Listing listing{.tiles = ceil_div(dims[Dim::Skv], tile.keys),
                        .rows = as_keys.cell,
                        .columns = tile.keys,
                        .by_keys = true,
                        .heads = dims[Dim::Hq] / dims[Dim::Hkv],
                        .units = dims[Dim::B] * dims[Dim::Hq],
                        .shares = false,
                        .sorts = !ordered,
                        .deadline = deadline};
  std::optional<Ordering> ordering;
  return listed_blocks(attention, mask_axes, listing, [&](Stretches& stretches, std::int64_t t) {
    auto runs = runs_of(joined(std::move(stretches[static_cast<std::size_t>(t)])), cells,
                        as_keys.keys, as_keys.cell);
    if (!ordered) return runs;
    if (t == 0) ordering.emplace(cells, tile.rows);
    return ordering->divided(runs, t);
  });
}

RowLists::RowLists(const ir::Dims& dims, const KeyBlocks& blocks, const RowTile& tile,
                   std::int64_t multiprocessors)
    : dims_(dims),
      tile_(tile),
      by_batch_(blocks.axes.batch),
      by_head_(blocks.axes.head),
      sizes_(sizes_of(dims, blocks, tile)),
      tiles_of_block_(sizes_.tiles_of_block(multiprocessors)) {}

bool RowLists::can_be_made() const {
  const bool shared = by_head_ && dims_[Dim::Hq] != dims_[Dim::Hkv];
  return !shared && sizes_.fit();
}

std::string RowLists::text(const std::string& parameters, const std::string& object,
                           const MadeDivision& division, std::int64_t place) const {
  const std::pair<const char*, std::int64_t> integers[] = {
      {"kLists", sizes_.lists},
      {"kUnits", dims_[Dim::Hkv]},
      {"kListsOfUnit", by_head_ ? 1 : 0},
      {"kTiles", sizes_.tiles},
      {"kTilesOfBlock", tiles_of_block_},
      {"kRowsOfTile", tile_.keys},
      {"kRows", dims_[Dim::Skv]},
      {"kColumns", dims_[Dim::Sq]},
      {"kCellKeys", kCell},
      {"kCells", sizes_.cells},
      {"kKeys", tile_.rows},
      {"kMostRuns", sizes_.most_runs()},
      {"kBatchesOfList", by_batch_ ? 1 : dims_[Dim::B]},
      {"kHeadsOfList", by_head_ ? 1 : dims_[Dim::Hkv]},
      {"kStepsOfBlock", dims_[Dim::Hq] / dims_[Dim::Hkv]},
      {"kMostParts", division.most_parts},
      {"kSharesOfAll", division.shares},
      {"kLeastSteps", division.least_steps}};
  std::string constants = "struct ListConstants {\n";
  for (const auto& [name, value] : integers) {
    constants += fmt::format("  static constexpr int {} = {};\n", name, value);
  }
  const std::string of_division =
      division.most_parts == 0
          ? "nullptr"
          : fmt::format("reinterpret_cast<kernels::Division*>(counter + {})", place);
  return constants + "};\n" +
         lists_kernel_text(parameters, object,
                           "kernels::list_rows<ListConstants>(\n"
                           "      kernels::Transposed<Expressions>{expressions},\n"
                           "      {tiles, sorted, runs, counter + 1}, " +
                               of_division + ");");
}

void RowLists::add(plan::Program& program, plan::KernelStep& step, const char* counters,
                   const std::vector<plan::KernelArgument>& inputs) const {
  add_lists(sizes_, tiles_of_block_, counters, inputs, program, step);
}

}  // namespace attn::engines::native
