// Lists of row blocks that the GPU makes at every execute (attn/row_lists.cuh), where inputs decide
// what masks show. Their tiles are the blocks of keys of row_blocks.h, their cells kCell rows.
//
//   native.cells, native.tiles, native.sorted, native.runs: as those of key blocks (native.h)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/lowering/native/key_blocks.h"
#include "compiler/lowering/native/native.h"
#include "compiler/lowering/native/row_blocks.h"
#include "runtime/plan/program.h"

namespace attn::lowering::native {

// What the backward kernel reads of them.
inline constexpr const char* kSortedTiles = "native.sorted";
inline constexpr const char* kRunsOfTiles = "native.runs";

class RowLists {
 public:
  // `blocks`: with the axes on which masks depend.
  RowLists(const ir::Dims& dims, const KeyBlocks& blocks, const RowTile& tile,
           std::int64_t multiprocessors)
      : dims_(dims), blocks_(blocks), tile_(tile), multiprocessors_(multiprocessors) {}

  // Whether the GPU can make them: lists of more elements than kMostListed take too much memory,
  // and heads that share keys share a list.
  bool can_be_made() const;

  std::int64_t lists() const;
  // Constants and the kernel. `parameters` and `object` are those of expressions (kernel.h).
  std::string text(const std::string& parameters, const std::string& object) const;
  // The launch, and what it writes. `inputs`: arguments of the parameters; `counters`: zeros, of
  // which those after the first are of lists.
  void add(plan::Program& program, plan::KernelStep& step, const char* counters,
           const std::vector<plan::KernelArgument>& inputs) const;
  // `intervals_decide`: what masks show, see intervals.h.
  ListWork work(bool intervals_decide) const;

 private:
  static constexpr const char* kCells = "native.cells";
  static constexpr const char* kTiles = "native.tiles";
  static constexpr std::int64_t kMostListed = std::int64_t{1} << 28;  // words of cells, and runs
  // Tiles that a block of threads lists, at most; and blocks for each multiprocessor.
  static constexpr std::int64_t kMostTilesOfBlock = 8, kListBlocks = 2;

  static std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }
  std::int64_t tiles() const { return lists() * blocks_.tiles; }
  std::int64_t tiles_of_block() const;
  std::int64_t cells() const;  // of a tile
  std::int64_t cell_words() const { return 2 * ceil_div(cells(), 32); }
  std::int64_t most_runs() const;  // of a tile

  const ir::Dims& dims_;
  const KeyBlocks& blocks_;
  const RowTile tile_;
  const std::int64_t multiprocessors_;
};

}  // namespace attn::lowering::native
