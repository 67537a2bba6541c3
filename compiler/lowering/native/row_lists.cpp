#include "compiler/lowering/native/row_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "compiler/lowering/native/kernel.h"
#include "compiler/lowering/native/tiles.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::lowering::native {
using ir::Dim;

std::int64_t RowLists::lists() const {
  return (blocks_.axes.batch ? dims_[Dim::B] : 1) * (blocks_.axes.head ? dims_[Dim::Hkv] : 1);
}

std::int64_t RowLists::cells() const { return ceil_div(dims_[Dim::Sq], kCell); }

std::int64_t RowLists::most_runs() const { return ceil_div(cells(), tile_.rows / kCell); }

std::int64_t RowLists::tiles_of_block() const {
  const std::int64_t blocks = kListBlocks * multiprocessors_;
  return std::clamp<std::int64_t>(ceil_div(tiles(), blocks), 1, kMostTilesOfBlock);
}

bool RowLists::can_be_made() const {
  const bool shared = blocks_.axes.head && dims_[Dim::Hq] != dims_[Dim::Hkv];
  return !shared && tiles() * (cell_words() + 2 * most_runs() + 8) <= kMostListed;
}

std::string RowLists::text(const std::string& parameters, const std::string& object) const {
  const std::pair<const char*, std::int64_t> integers[] = {
      {"kLists", lists()},
      {"kUnits", dims_[Dim::Hkv]},
      {"kListsOfUnit", blocks_.axes.head ? 1 : 0},
      {"kTiles", blocks_.tiles},
      {"kTilesOfBlock", tiles_of_block()},
      {"kRowsOfTile", tile_.keys},
      {"kRows", dims_[Dim::Skv]},
      {"kColumns", dims_[Dim::Sq]},
      {"kCellKeys", kCell},
      {"kCells", cells()},
      {"kKeys", tile_.rows},
      {"kMostRuns", most_runs()}};
  std::string constants = "struct ListConstants {\n";
  for (const auto& [name, value] : integers) {
    constants += fmt::format("  static constexpr int {} = {};\n", name, value);
  }
  return constants + "};\n" +
         fmt::format(
             "extern \"C\" __global__ void __launch_bounds__({}, 1) {}(\n"
             "    kernels::CellBits* cells, kernels::Tile* tiles, kernels::Tile* sorted,\n"
             "    kernels::Run* runs, int* counter{}) {{\n  {}\n"
             "  "
             "kernels::list_keys<ListConstants>(kernels::Transposed<Expressions>{{expressions}},\n"
             "                                    {{cells, tiles, sorted, runs, counter + "
             "1}});\n}}\n",
             kListThreads, kListsKernel, parameters, object);
}

void RowLists::add(plan::Program& program, plan::KernelStep& step, const char* counters,
                   const std::vector<plan::KernelArgument>& inputs) const {
  std::vector<plan::KernelArgument> arguments;
  const auto add = [&](const char* name, std::int64_t elements) {
    program.internals.push_back(plan::internal_tensor(name, DType::i32, {elements}));
    step.outputs.emplace_back(name);
    arguments.emplace_back(plan::TensorOperand{name});
  };
  add(kCells, tiles() * cell_words());
  add(kTiles, 4 * tiles());
  add(kSortedTiles, 4 * tiles());
  add(kRunsOfTiles, 2 * tiles() * most_runs());
  arguments.emplace_back(plan::TensorOperand{counters});
  std::ranges::copy(inputs, std::back_inserter(arguments));
  const auto sorted =
      std::bit_ceil(std::max<std::size_t>(2, static_cast<std::size_t>(blocks_.tiles)));
  step.launches.push_back({.kernel = kListsKernel,
                           .grid = {lists() * ceil_div(blocks_.tiles, tiles_of_block()), 1, 1},
                           .block = {kListThreads, 1, 1},
                           .shared_bytes = static_cast<std::int64_t>(8 * sorted),
                           .arguments = std::move(arguments)});
}

ListWork RowLists::work(bool intervals_decide) const {
  const auto scores = static_cast<double>(lists() * dims_[Dim::Sq] * dims_[Dim::Skv]);
  const auto of_tile = static_cast<double>(4 * cell_words() + 8 * most_runs() + 32);
  return {.scores = intervals_decide ? 0 : scores,
          .cells = intervals_decide ? static_cast<double>(tiles() * cells()) : 0,
          .bytes = 2 * static_cast<double>(tiles()) * of_tile};
}

}  // namespace attn::lowering::native
