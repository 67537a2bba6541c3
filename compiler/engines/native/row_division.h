// Blocks of keys of the backward that are divided among blocks of threads (attn/division.cuh),
// where the rows of one take longer than a fair share of all, or blocks of keys are few. Parts are
// of the steps of its rows, a step for each block of rows and each of the heads that share the
// keys.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/engines/native/key_blocks.h"
#include "compiler/ir/attention.h"

namespace attn::engines::native {

// The host's form of Part (attn/division.cuh). `tile`: in KeyBlocks::lists.
struct RowPart {
  std::int64_t unit = 0, tile = 0, part = 0, parts = 1;
};

// The host's form of DividedBlock (attn/division.cuh).
struct DividedBlock {
  std::int64_t item = 0, part = 0;  // the first ones
};

// If sums of dq are ordered, blocks of keys are taken in ascending order, those of so many heads of
// keys side by side, whose queries stay in the L2 cache.
inline constexpr std::int64_t kUnitsOfOrder = 4;

struct RowDivision {
  std::vector<RowPart> parts;  // of blocks of keys that are divided; none: nothing is
  std::int64_t most = 0;       // blocks of rows of a block of keys that is not divided
  bool all = false;            // all blocks of keys are: parts are all items
  // Places of the parts among all items, if sums of dq are ordered and not all are divided; in
  // ascending order. Otherwise they come first.
  std::vector<DividedBlock> in_order;
  double longest = 0;  // steps of an item
};

// The division of known lists: the fewest parts among those that take about the shortest time, less
// than 8 for each multiprocessor. `ordered`: see row_blocks.
RowDivision row_division(const ir::Dims& dims, const KeyBlocks& blocks, double multiprocessors,
                         bool ordered);

// Blocks with as many in each tile as the longest has, and the same in all batches and heads: what
// is known of a band.
KeyBlocks with_equal_tiles(KeyBlocks blocks);

// The division of lists that the GPU makes, and divides at every execute (attn/row_lists.cuh).
struct MadeDivision {
  std::int64_t most_parts = 0;   // 0: it does not
  std::int64_t shares = 0;       // of all steps, a part has one
  std::int64_t least_steps = 0;  // of a part
};
// `blocks`: an upper bound.
MadeDivision made_division(const ir::Dims& dims, const KeyBlocks& blocks, double multiprocessors);

}  // namespace attn::engines::native
