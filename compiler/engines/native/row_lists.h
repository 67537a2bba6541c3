// Which blocks of rows see each block of keys: what the backward kernel walks (attn/backward.cuh).
// Where inputs decide what masks show, the GPU makes the lists at every execute
// (attn/row_lists.cuh): their tiles are the blocks of keys of row_blocks(), their cells kCell rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/engines/native/key_blocks.h"
#include "compiler/engines/native/made_lists.h"
#include "compiler/engines/native/row_division.h"
#include "compiler/engines/native/row_tiles.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

// The first row, a multiple of kCell, of blocks that no row is in.
std::int64_t past_all_rows(const ir::Dims& dims);

// Lists of blocks of rows for blocks of keys, in the form of key_blocks: tiles are blocks of keys,
// and runs are of rows. Heads that share keys share a list, which has what any of them shows.
// `ordered`: blocks begin at multiples of their rows, runs have KeyRun::before, and tiles are in
// ascending order. Errors: as for key_blocks.
Result<KeyBlocks> row_blocks(const ir::Attention& attention, const masks::Axes& mask_axes,
                             const RowTile& tile, bool ordered,
                             target::Deadline* deadline = nullptr);

class RowLists {
 public:
  // `blocks`: with the axes on which masks depend.
  RowLists(const ir::Dims& dims, const KeyBlocks& blocks, const RowTile& tile,
           std::int64_t multiprocessors);

  // Whether the GPU can make them: they take little memory, and heads that share keys, and so a
  // list, do not differ.
  bool can_be_made() const;

  const MadeLists& sizes() const { return sizes_; }
  // Constants and the kernel. `parameters` and `object` are those of expressions (kernel.h);
  // `place`: of Division (attn/division.cuh) among counters.
  std::string text(const std::string& parameters, const std::string& object,
                   const MadeDivision& division, std::int64_t place) const;
  // The launch, and what it writes. `inputs`: arguments of the parameters; `counters`: zeros, of
  // which those after the first are of lists.
  void add(plan::Program& program, plan::KernelStep& step, const char* counters,
           const std::vector<plan::KernelArgument>& inputs) const;

 private:
  const ir::Dims& dims_;
  const RowTile tile_;
  const bool by_batch_, by_head_;
  const MadeLists sizes_;
  const std::int64_t tiles_of_block_;
};

}  // namespace attn::engines::native
