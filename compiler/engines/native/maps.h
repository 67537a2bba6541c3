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
// that one copy moves, except of a patch. Pages in groups have columns of a panel, rows of a group,
// panels, groups, and last pages and heads together (TensorMapArgument::kPagesAndHeads).
plan::TensorMapArgument map_of_keys(const ir::Attention& attention, const std::string& name,
                                    const Tile& tile, std::int64_t rows);

// Whether "k" or "v" is in pages of which one copy moves `rows` rows with all their panels: to
// groups of 8 rows (attn/forward_stages.cuh). Memory reads rows whole so: an H200 copies pages of
// 16 rows of 256 bytes 3 % faster, and those of 64 as fast.
bool in_groups(const ir::Attention& attention, const std::string& name, const Tile& tile,
               std::int64_t rows);
// Strides of pages, heads and rows that a kernel knows of "k" or "v" in pages: of those in groups
// in steps of the map.
struct PoolStrides {
  std::int64_t page = 0, head = 0, row = 0;
};
PoolStrides pool_strides(const ir::Attention& attention, const std::string& name, bool in_steps);

// Tensor maps have five dimensions, and queries of patches six: a batch's follow those of the batch
// before, at a unit's or at a grid row's distance. nullopt if their strides fit neither.
enum class BatchesAs : std::uint8_t { units, rows };
std::optional<BatchesAs> batches_as(const ir::Attention& attention, const Tile& tile);

}  // namespace attn::engines::native
