#include "compiler/engines/shared/lengths.h"

#include <limits>

namespace attn::engines {
namespace {

ir::LayoutKind kind_of(const ir::Attention& attention, std::string_view tensor) {
  return attention.layouts.find(tensor)->second.kind;
}

bool is_ragged(const ir::Attention& attention, std::string_view tensor) {
  return kind_of(attention, tensor) == ir::LayoutKind::thd;
}

// index < lengths
Value within(GraphBuilder& builder, std::int64_t axis, Uid lengths, Value score, SourcePos pos) {
  const Value index = builder.index(axis, score.uid, pos, DType::i32);
  return builder.element(PointwiseMode::cmp_lt, DType::boolean, DType::boolean, index,
                         Value{lengths, DType::i32, Place::tensor}, pos);
}

}  // namespace

std::int64_t captured_alignment(std::string_view name, DType dtype) {
  const bool is_scalar = (ir::is_scale(name) && dtype != DType::e8m0) || ir::is_amax(name);
  return name == ir::kLengthsQ || name == ir::kLengthsKv || is_scalar ? 4 : 16;
}

bool has_lengths(const ir::Attention& attention) {
  if (has_row_lengths(attention) || has_column_lengths(attention)) return true;
  return kind_of(attention, "k") == ir::LayoutKind::paged ||
         kind_of(attention, "v") == ir::LayoutKind::paged;
}

bool has_row_lengths(const ir::Attention& attention) {
  return attention.lengths_q || is_ragged(attention, "q") || is_ragged(attention, "o");
}

bool has_column_lengths(const ir::Attention& attention) {
  return attention.lengths_kv || is_ragged(attention, "k") || is_ragged(attention, "v");
}

bool ignores_row_lengths(const ir::Attention& attention) {
  return has_row_lengths(attention) && attention.dims[ir::Dim::Sq] == 1;
}

Lengths add_lengths(const ir::Attention& attention, GraphBuilder& builder) {
  if (!has_lengths(attention)) return {};
  const Dims4 dims{attention.dims[ir::Dim::B], 1, 1, 1};
  const auto add = [&](std::string_view name) {
    return builder.add_tensor(std::string(name), DType::i32, dims, {1, 1, 1, 1},
                              {.alignment = captured_alignment(name)});
  };
  return {add(ir::kLengthsQ), add(ir::kLengthsKv)};
}

Value mask_padding(GraphBuilder& builder, const Lengths& lengths, Value score, SourcePos pos) {
  if (!lengths.q || !lengths.kv) return score;
  const Value row = within(builder, 2, *lengths.q, score, pos);
  const Value column = within(builder, 3, *lengths.kv, score, pos);
  const Uid both = builder.add_scores(DType::boolean);
  builder.pointwise(PointwiseMode::logical_and, DType::boolean, row.uid, column.uid, both, pos);
  const Value hidden = builder.constant(DType::f32, -std::numeric_limits<double>::infinity());
  return builder.select({both, DType::boolean, Place::element}, score, hidden, pos);
}

}  // namespace attn::engines
