// Text shared by kernels over rows of scores, where several threads compute a row.
#pragma once

#include <optional>
#include <string>

#include "compiler/derive/row_tile.h"
#include "compiler/ir/attention.h"
#include "compiler/lowering/common/kernel_text.h"

namespace attn::lowering {

// Threads per row of scores: a warp, or 8 if there are few columns (a multiple of 8).
std::int64_t lanes_of(std::int64_t columns);

// Statements for thread `i` of R rows of W lanes, a power of two up to 32. They define its `lane`;
// its row `r` of [B,Hq,Sq], `b`, `h` and `s`; `live`, whether that row exists (else the last row is
// used); `present`, whether it is within the lengths; `visible`, how many of its columns are; and
// `nothing`, -inf. With a tile, the R rows and `r` are those of the tile, and `whole` is the row of
// [B,Hq,Sq].
std::string row_text(const ir::Attention& attention, std::int64_t lanes, KernelText& kernel,
                     const std::optional<derive::RowTile>& tile = {});

// The index of that row in a tensor of statistics, if the row is present. `tiled`: whether row_text
// had a tile.
std::string row_place(const ir::Attention& attention, KernelText& kernel, bool tiled = false);

// Statements that sum a double over the lanes of a row; every lane gets the sum.
std::string sum_over_lanes(const std::string& variable);

}  // namespace attn::lowering
