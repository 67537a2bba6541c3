// What kernels that go over rows of scores share: several threads make a row.
#pragma once

#include <optional>
#include <string>

#include "compiler/derive/row_tile.h"
#include "compiler/ir/attention.h"
#include "compiler/lowering/common/kernel_text.h"

namespace attn::lowering {

// How many threads make a row of scores: a warp, or 8 where the columns, a multiple of 8, are few.
std::int64_t lanes_of(std::int64_t columns);

// Statements for thread `i` of R rows of W lanes, a power of two up to 32: its `lane`; its row `r`
// of [B,Hq,Sq], `b`, `h` and `s`, and whether there is one, `live` (the last row stands in for one
// that there is not); whether lengths leave the row, `present`, and how many of its columns,
// `visible`; `nothing`, -inf. With a tile, R rows of the tile, of which `r` is one; the row of
// [B,Hq,Sq] that it is, is `whole`.
std::string row_text(const ir::Attention& attention, std::int64_t lanes, KernelText& kernel,
                     const std::optional<derive::RowTile>& tile = {});

// The index of that row in a tensor of statistics, if the row is present. `tiled`: the text is one
// with a tile.
std::string row_place(const ir::Attention& attention, KernelText& kernel, bool tiled = false);

// A sum of doubles over the lanes of a row, each of which gets it.
std::string sum_over_lanes(const std::string& variable);

}  // namespace attn::lowering
