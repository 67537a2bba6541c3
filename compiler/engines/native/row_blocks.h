// Which blocks of rows see each block of keys: what the backward kernel walks (attn/backward.cuh).
#pragma once

#include <cstdint>

#include "compiler/engines/native/key_blocks.h"
#include "compiler/ir/attention.h"

namespace attn::engines::native {

// What a block of threads of attnc's backward kernel holds, and streams by.
struct RowTile {
  std::int64_t rows = 64;  // of a block
  std::int64_t keys = 128;
  double rate = 1;  // scores in the same time, compared with the best of these head dimensions
};
inline constexpr std::int64_t kStagesOfBackward = 2;  // of rows
inline constexpr std::int64_t kGroupsOfBackward = 2;  // warp groups that compute
inline constexpr std::int64_t kThreadsOfBackward = 128 * (kGroupsOfBackward + 1);

// The first row, a multiple of kCell, of blocks that no row is in.
std::int64_t past_all_rows(const ir::Dims& dims);

// Lists of blocks of rows for blocks of keys, in the form of key_blocks: tiles are blocks of keys,
// and runs are of rows. Heads that share keys share a list, which has what any of them shows.
// `ordered`: blocks begin at multiples of their rows, runs have KeyRun::before, and tiles are in
// ascending order. Errors: as for key_blocks.
Result<KeyBlocks> row_blocks(const ir::Attention& attention, const masks::Axes& mask_axes,
                             const RowTile& tile, bool ordered,
                             target::Deadline* deadline = nullptr);

}  // namespace attn::engines::native
