// Which blocks of keys each tile of queries sees: what the kernel walks (attn/tile_runs.cuh).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/engines/native/tiles.h"
#include "compiler/engines/shared/key_runs.h"
#include "compiler/ir/attention.h"
#include "compiler/masks/axes.h"
#include "compiler/target/deadline.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

// Blocks of tile.keys keys for tiles of tile.rows_of_head() rows. Masks that read tensors may show
// anything; lengths are not considered. Errors: unsupported if there are more than kMostEntries
// lists and runs; that of the deadline, which may be null, when it is over. Dimensions must be
// bound.
inline constexpr std::int64_t kMostEntries = std::int64_t{1} << 17;
Result<KeyBlocks> key_blocks(const ir::Attention& attention, const masks::Axes& mask_axes,
                             const Tile& tile, target::Deadline* deadline = nullptr);

// The blocks of such lists, where `streamed` blocks cover what a tile may see; nothing without any.
std::optional<plan::BlockCounts> counts_of(const KeyBlocks& blocks, std::int64_t streamed);

// Parts of the text of kernels: the arrays of lists, and a class `Lists` of them
// (attn/forward.cuh).
std::string lists_text(const KeyBlocks& blocks);
std::string lists_in_memory_text();  // of arrays that kernels made

}  // namespace attn::engines::native
