// Kernels over rows of scores (compiler/kernels/attn/rows.cuh).
#pragma once

#include <optional>
#include <vector>

#include "compiler/derive/row_tile.h"
#include "compiler/ir/attention.h"
#include "compiler/kernels/kernel_text.h"

namespace attn::lowering {

// Threads per row of scores: a warp, or 8 if there are few columns (a multiple of 8).
std::int64_t lanes_of(std::int64_t columns);

// The fields of kernels::Rows, over the rows of the attention or of the tile.
std::vector<kernels::Field> row_fields(const ir::Attention& attention, std::int64_t lanes,
                                       kernels::KernelText& kernel,
                                       const std::optional<derive::RowTile>& tile = {});

// `kept`, an i32 tensor, and `keep_scale`; nothing if the name is empty.
std::vector<kernels::Field> kept_fields(const ir::Attention& attention, const std::string& kept,
                                        kernels::KernelText& kernel);

}  // namespace attn::lowering
