// Which blocks of rows see each block of keys: what the backward kernel walks (attn/backward.cuh).
#pragma once

#include <cstdint>

#include "compiler/ir/attention.h"
#include "compiler/lowering/native/key_blocks.h"

namespace attn::lowering::native {

inline constexpr std::int64_t kKeysOfBlock = 128;

// The first row, a multiple of kCell, of blocks that no row is in.
std::int64_t past_all_rows(const ir::Dims& dims);

// Lists of blocks of `rows` rows for blocks of kKeysOfBlock keys, in the form of key_blocks: tiles
// are blocks of keys, and runs are of rows. Heads that share keys share a list, which has what any
// of them shows. `ordered`: blocks begin at multiples of `rows`, runs have KeyRun::before, and
// tiles are in ascending order. Errors: as for key_blocks.
Result<KeyBlocks> row_blocks(const ir::Attention& attention, const passes::Axes& mask_axes,
                             std::int64_t rows, bool ordered);

}  // namespace attn::lowering::native
