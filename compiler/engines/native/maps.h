// The tensor maps by which attnc's forward kernel reads q, k and v.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/engines/native/tiles.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

// Columns, heads of a unit, rows, units, batches; for patches columns, heads of a unit, x, y,
// units, where batches are as BatchesAs says. Of a packed tensor (thd) columns, heads, and rows
// three times, as attn/packed_rows.cuh says.
plan::TensorMapArgument map_of_queries(const ir::Attention& attention, const Tile& tile);

// The map of "k" or "v": columns, keys, heads, batches (of a packed one, rows twice instead); for
// patches columns, x, y, heads, batches; of pages columns, rows of a page, heads, pages. `rows`:
// that one copy moves, except of a patch.
plan::TensorMapArgument map_of_keys(const ir::Attention& attention, const std::string& name,
                                    const Tile& tile, std::int64_t rows);

// Tensor maps have five dimensions, and queries of patches six: a batch's follow those of the batch
// before, at a unit's or at a grid row's distance. nullopt if their strides fit neither.
enum class BatchesAs : std::uint8_t { units, rows };
std::optional<BatchesAs> batches_as(const ir::Attention& attention, const Tile& tile);

}  // namespace attn::engines::native
