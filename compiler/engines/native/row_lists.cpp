#include "compiler/engines/native/row_lists.h"

#include <fmt/format.h>

#include <utility>

#include "compiler/engines/native/tiles.h"
#include "runtime/base/ceil_div.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

MadeLists sizes_of(const ir::Dims& dims, const KeyBlocks& blocks, const RowTile& tile) {
  return {.lists = (blocks.axes.batch ? dims[Dim::B] : 1) * (blocks.axes.head ? dims[Dim::Hkv] : 1),
          .tiles = blocks.tiles,
          .cells = ceil_div(dims[Dim::Sq], kCell),
          .cells_of_block = tile.rows / kCell};
}

}  // namespace

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
