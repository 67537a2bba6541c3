// Lists of blocks that the GPU makes at every execute, where inputs decide what masks show, which
// are no band (bands.h): their sizes, the launch, and what it writes. Of the forward, tiles are of
// queries, and blocks and cells of keys (attn/key_lists.cuh); of the backward, the other way around
// (attn/row_lists.cuh).
//
//   native.tiles    i32 [lists, tiles, 4]: where the runs of a tile are
//   native.sorted   the same, the longest first
//   native.runs     i32 [lists, tiles, most, 2]: runs of blocks
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/engines/native/programs.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

// What the kernel behind it reads.
inline constexpr const char* kSortedTiles = "native.sorted";
inline constexpr const char* kRunsOfTiles = "native.runs";

struct MadeLists {
  std::int64_t lists = 1;  // that differ: of batches and heads, as far as masks depend on them
  std::int64_t tiles = 1;  // of a list
  std::int64_t cells = 1;  // of a tile
  std::int64_t cells_of_block = 1;

  std::int64_t all_tiles() const { return lists * tiles; }
  std::int64_t most_runs() const;  // of a tile
  // Whether they take little enough memory, and a block of threads can sort a list.
  bool fit() const;
  // Where tiles are many, blocks of threads list several and read the columns once for them.
  std::int64_t tiles_of_block(std::int64_t multiprocessors) const;
};

// The kernel. `parameters` and `object` are those of expressions (kernel.h); `call` is the
// statement that makes the lists.
std::string lists_kernel_text(const std::string& parameters, const std::string& object,
                              const std::string& call);

// Adds the launch, and what it writes. `counters`: the tensor of counters; `inputs`: arguments of
// the parameters.
void add_lists(const MadeLists& lists, std::int64_t tiles_of_block, const char* counters,
               const std::vector<plan::KernelArgument>& inputs, plan::Program& program,
               plan::KernelStep& step);

// Each list of runs and tiles is written and read at least once.
ListWork work_of(const MadeLists& lists, const ir::Attention& attention);

}  // namespace attn::engines::native
