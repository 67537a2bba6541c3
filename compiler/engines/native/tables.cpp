#include "compiler/engines/native/tables.h"

#include "compiler/codegen/expression_writer.h"
#include "compiler/engines/native/tiles.h"

namespace attn::engines::native {
namespace {

using ir::ExprId;
using ir::Op;

std::optional<Table> read_by(const ir::Attention& attention, ExprId load, std::int64_t alignment) {
  const ir::Dag& dag = attention.dag;
  const ir::CapturedTensor& tensor = *attention.find_tensor(dag.symbol_of(load));
  const bool narrow = tensor.dtype == DType::bf16 || tensor.dtype == DType::f16;
  if (!narrow && tensor.dtype != DType::f32) return std::nullopt;
  if (!codegen::unproven_indices(attention, load).empty()) return std::nullopt;
  const std::vector<ExprId>& indices = dag[load].operands;
  const std::size_t rank = indices.size();
  if (rank < 2 || !dag[indices[rank - 1]].is(Op::column_)) return std::nullopt;
  const bool only_row =
      attention.dims[ir::Dim::Sq] == 1 && ir::fold_integer(dag, indices[rank - 2]) == 0;
  if (!only_row && !dag[indices[rank - 2]].is(Op::row_)) return std::nullopt;
  const auto extent = [&](std::size_t axis) {
    return *ir::fold_integer(dag, tensor.extents[axis], attention.dims);
  };
  Table table{.load = load,
              .tensor = tensor.name,
              .element = narrow ? 2 : 4,
              .rows = extent(rank - 2),
              .columns = extent(rank - 1)};
  table.row_stride = table.columns;
  std::int64_t stride = table.rows * table.columns;
  for (std::size_t axis = rank - 2; axis-- > 0; stride *= extent(axis)) {
    const ir::Node& index = dag[indices[axis]];
    if (index.is(Op::batch_) && table.batches == 1) {
      table.batches = extent(axis), table.batch_stride = stride;
    } else if (index.is(Op::head_) && table.heads == 1) {
      table.heads = extent(axis), table.head_stride = stride;
    } else if (ir::fold_integer(dag, indices[axis]) != 0) {
      return std::nullopt;
    }
  }
  return table.row_stride * table.element % alignment == 0 ? std::optional(table) : std::nullopt;
}

// The stride of an axis; that of one element does not matter.
std::int64_t stride_of(const Table& table, std::int64_t size, std::int64_t elements) {
  return size == 1 ? kAlignedForTma / table.element : elements;
}

}  // namespace

std::optional<Table> table_of(const ir::Attention& attention, ExprId root, std::int64_t alignment) {
  const ExprId roots[] = {root};
  for (const ExprId id : ir::reachable(attention.dag, roots)) {
    if (!attention.dag[id].is(Op::load_)) continue;
    if (auto table = read_by(attention, id, alignment)) return table;
  }
  return std::nullopt;
}

plan::TensorMapArgument map_of_rows(const Table& table, std::int64_t rows) {
  return {.tensor = {table.tensor},
          .dims = {table.columns, table.rows, table.heads, table.batches},
          .strides = {stride_of(table, table.rows, table.row_stride),
                      stride_of(table, table.heads, table.head_stride),
                      stride_of(table, table.batches, table.batch_stride)},
          .box = {kPanel, rows, 1, 1},
          .swizzle = 128};
}

plan::TensorMapArgument map_of(const Table& table, const Tile& tile) {
  const std::int64_t pack = table.pack(tile.pack);
  const auto stride = [&](std::int64_t size, std::int64_t elements) {
    return stride_of(table, size, elements);
  };
  const bool wide = table.element == 4;
  const std::int64_t units = table.heads / pack;
  return {.tensor = {table.tensor},
          .dims = {table.columns, pack, table.rows, units, table.batches},
          .strides = {stride(pack, table.head_stride), stride(table.rows, table.row_stride),
                      stride(units, table.head_stride * pack),
                      stride(table.batches, table.batch_stride)},
          .box = {wide ? tile.table_columns() : kPanel, pack, tile.rows_of_head(), 1, 1},
          .swizzle = wide ? 0 : 128};
}

}  // namespace attn::engines::native
