#include "compiler/engines/native/made_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "compiler/engines/native/intervals.h"
#include "compiler/engines/native/kernel_names.h"
#include "runtime/base/ceil_div.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

constexpr std::int64_t kListThreads = 512;
constexpr const char* kTiles = "native.tiles";
constexpr std::int64_t kTileWords = 4, kRunWords = 2;
constexpr std::int64_t kMostListed = std::int64_t{1} << 28;  // words
// Most tiles of a list: a block of threads sorts them in shared memory, 4 bytes each.
constexpr std::int64_t kMostSorted = std::int64_t{1} << 15;
// Tiles that a block of threads lists, at most; and blocks for each multiprocessor.
constexpr std::int64_t kMostTilesOfBlock = 8, kListBlocks = 2;

std::int64_t words_of_tile(const MadeLists& lists) {
  return kRunWords * lists.most_runs() + 2 * kTileWords;
}

}  // namespace

std::int64_t MadeLists::most_runs() const { return ceil_div(cells, cells_of_block); }

bool MadeLists::fit() const {
  return tiles <= kMostSorted && all_tiles() * words_of_tile(*this) <= kMostListed;
}

std::int64_t MadeLists::tiles_of_block(std::int64_t multiprocessors) const {
  const std::int64_t blocks = kListBlocks * multiprocessors;
  return std::clamp<std::int64_t>(ceil_div(all_tiles(), blocks), 1, kMostTilesOfBlock);
}

std::string lists_kernel_text(const std::string& parameters, const std::string& object,
                              const std::string& call) {
  return fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}, 1) {}(\n"
      "    kernels::Tile* tiles, kernels::Tile* sorted, kernels::Run* runs,\n"
      "    int* counter{}) {{\n  {}\n  {}\n}}\n",
      kListThreads, kListsKernel, parameters, object, call);
}

void add_lists(const MadeLists& lists, std::int64_t tiles_of_block, const char* counters,
               const std::vector<plan::KernelArgument>& inputs, plan::Program& program,
               plan::KernelStep& step) {
  std::vector<plan::KernelArgument> arguments;
  const auto add = [&](const char* name, std::int64_t words_of_tile) {
    program.internals.push_back(
        plan::internal_tensor(name, DType::i32, {lists.all_tiles() * words_of_tile}));
    step.outputs.emplace_back(name);
    arguments.emplace_back(plan::TensorOperand{name});
  };
  add(kTiles, kTileWords);
  add(kSortedTiles, kTileWords);
  add(kRunsOfTiles, kRunWords * lists.most_runs());
  arguments.emplace_back(plan::TensorOperand{counters});
  std::ranges::copy(inputs, std::back_inserter(arguments));
  step.launches.push_back({.kernel = kListsKernel,
                           .grid = {lists.lists * ceil_div(lists.tiles, tiles_of_block), 1, 1},
                           .block = {kListThreads, 1, 1},
                           .shared_bytes = 4 * lists.tiles,
                           .arguments = std::move(arguments)});
}

ListWork work_of(const MadeLists& lists, const ir::Attention& attention) {
  const ir::Dims& dims = attention.dims;
  const bool decide = intervals_decide(attention, attention.masks);
  const auto scores = static_cast<double>(lists.lists * dims[Dim::Sq] * dims[Dim::Skv]);
  const auto bytes_of_tile = static_cast<double>(4 * words_of_tile(lists));
  return {.scores = decide ? 0 : scores,
          .cells = decide ? static_cast<double>(lists.all_tiles() * lists.cells) : 0,
          .bytes = 2 * static_cast<double>(lists.all_tiles()) * bytes_of_tile};
}

}  // namespace attn::engines::native
