// Kernels over rows of scores (compiler/device/attn/rows.cuh).
#pragma once

#include <optional>
#include <vector>

#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/row_tile.h"
#include "compiler/ir/attention.h"

namespace attn::engines {

// Threads per row of scores: a warp, or 8 if there are few columns (a multiple of 8).
std::int64_t lanes_of(std::int64_t columns);

// The fields of kernels::Rows, over the rows of the attention or of the tile.
std::vector<codegen::Field> row_fields(const ir::Attention& attention, std::int64_t lanes,
                                       codegen::KernelText& kernel,
                                       const std::optional<codegen::RowTile>& tile = {});

// `kept`, an i32 tensor, and `keep_scale`; nothing if the name is empty.
std::vector<codegen::Field> kept_fields(const ir::Attention& attention, const std::string& kept,
                                        codegen::KernelText& kernel);

}  // namespace attn::engines
