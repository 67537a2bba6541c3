// A captured tensor that scores read at their row and column, such as a bias: the kernel copies
// tiles of it to shared memory, beside the keys, and reads them in the layout of the scores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

struct Tile;

struct Table {
  ir::ExprId load = 0;
  std::string tensor;
  std::int64_t element = 2;  // bytes: 16-bit floats, or f32
  // Sizes and strides in elements; a size is 1 if the tensor is the same for all of the axis.
  std::int64_t batches = 1, heads = 1, rows = 1, columns = 1;
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0;

  // Heads of a tile whose rows differ.
  std::int64_t pack(std::int64_t heads_of_tile) const { return heads == 1 ? 1 : heads_of_tile; }
};

// The first tensor that `root` reads at [.., q_idx, kv_idx], where other indices are b, h or 0:
// floats of 16 or 32 bits, rows at multiples of so many bytes: for TMA of 16, for threads of any.
inline constexpr std::int64_t kAlignedForTma = 16, kAlignedForPairs = 2;
std::optional<Table> table_of(const ir::Attention& attention, ir::ExprId root,
                              std::int64_t alignment = kAlignedForTma);

// What TMA copies for a tile: columns, heads of a unit, rows, units, batches.
plan::TensorMapArgument map_of(const Table& table, const Tile& tile);
// The same for blocks of rows of one head, a panel of columns at a time: columns, rows, heads,
// batches. The elements are 16-bit floats.
plan::TensorMapArgument map_of_rows(const Table& table, std::int64_t rows);

}  // namespace attn::engines::native
