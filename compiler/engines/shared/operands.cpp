#include "compiler/engines/shared/operands.h"

#include <tuple>
#include <utility>

#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/staging.h"
#include "compiler/ir/cache_scales.h"

namespace attn::engines {
namespace {

using ir::Dim;
using ir::LayoutKind;

std::int64_t pages_for(std::int64_t rows, std::int64_t page) { return (rows + page - 1) / page; }

std::pair<Dims4, Dims4> transposed(Dims4 dims, Dims4 strides) {
  std::swap(dims[2], dims[3]);
  std::swap(strides[2], strides[3]);
  return {dims, strides};
}

Uid add_paged(const ir::Attention& attention, GraphBuilder& builder, const std::string& name,
              const Lengths& lengths) {
  const Uid pool = builder.add_tensor(name, attention.dtype_of(name), stored_dims(attention, name),
                                      stored_strides(attention, name));
  const Uid table = add_page_table(attention, builder, name);
  Dims4 dims = logical_dims(attention, name);
  Dims4 strides = packed_strides(dims);
  if (name == "k") std::tie(dims, strides) = transposed(dims, strides);
  const Uid gathered = builder.add_virtual(attention.dtype_of(name), dims, strides, name);
  builder.paged_load(pool, table, *lengths.kv, gathered, attention.pos);
  return gathered;
}

// A tensor in memory, or its copy; `turned` presents it as [B,H,D,S].
Uid add_dense(const ir::Attention& attention, GraphBuilder& builder, const std::string& name,
              bool turned) {
  const bool staged = is_staged(attention, name);
  Dims4 dims = staged ? staged_dims(attention, name) : stored_dims(attention, name);
  Dims4 strides = staged ? packed_strides(dims) : stored_strides(attention, name);
  TensorTraits traits;
  if (!staged && layout_of(attention, name).kind == LayoutKind::thd) {
    traits.ragged = add_offsets(attention, builder, name);
  }
  if (turned) std::tie(dims, strides) = transposed(dims, strides);
  return builder.add_tensor(staged ? staged_name(name) : name, attention.dtype_of(name), dims,
                            strides, traits);
}

}  // namespace

bool is_statistic(std::string_view name) {
  return name == kLseCotangent || name.starts_with("lse") || name.starts_with("max") ||
         name.starts_with("sum_exp");
}

std::string_view layout_owner(std::string_view name) {
  if (is_statistic(name) || name == "o_inner") return "o";
  return name.size() == 2 && name.starts_with('d') ? name.substr(1) : name;
}

const ir::Layout& layout_of(const ir::Attention& attention, std::string_view name) {
  static const ir::Layout dense;
  const std::string_view owner = layout_owner(name);
  const ir::Layout& layout = attention.layouts.find(owner)->second;
  const bool is_gradient = owner != name && !is_statistic(name) && !ir::is_o(name);
  return is_gradient && repeats(layout) ? dense : layout;
}

Dims4 logical_dims(const ir::Attention& attention, std::string_view name) {
  const ir::Dims& d = attention.dims;
  const std::string_view owner = layout_owner(name);
  const bool key_side = owner == "k" || owner == "v";
  const bool value_side = owner == "v" || owner == "o";
  return {d[Dim::B], key_side ? d[Dim::Hkv] : d[Dim::Hq], key_side ? d[Dim::Skv] : d[Dim::Sq],
          value_side ? d[Dim::Dv] : d[Dim::Dqk]};
}

Dims4 stored_dims(const ir::Attention& attention, std::string_view name) {
  Dims4 dims = logical_dims(attention, name);
  const ir::Layout& layout = layout_of(attention, name);
  if (layout.kind != LayoutKind::paged) return dims;
  dims[0] = layout.pages > 0 ? layout.pages : dims[0] * pages_for(dims[2], layout.page);
  dims[2] = layout.page;
  if (layout.rows) dims[3] = info(*layout.rows).bytes();
  return dims;
}

bool has_formatted_rows(const ir::Attention& attention, std::string_view name) {
  return (name == "k" || name == "v") && layout_of(attention, name).rows;
}

DType stored_dtype(const ir::Attention& attention, std::string_view name) {
  return has_formatted_rows(attention, name) ? DType::u8 : attention.dtype_of(name);
}

std::int64_t bytes_of_row(const ir::Attention& attention, std::string_view name) {
  if (has_formatted_rows(attention, name)) return info(*layout_of(attention, name).rows).bytes();
  return logical_dims(attention, name)[3] *
         static_cast<std::int64_t>(size_of(attention.dtype_of(name)));
}

Dims4 stored_strides(const ir::Attention& attention, std::string_view name) {
  if (name == "v" && attention.values_of_keys) return stored_strides(attention, "k");
  return ir::strides_of(layout_of(attention, name), stored_dims(attention, name),
                        {attention.dims[Dim::Hq], attention.dims[Dim::Hkv]});
}

Dims3 scale_dims(const ir::Attention& attention, std::string_view name) {
  const Dims4 dims = stored_dims(attention, name);
  return {dims[0], ir::info(attention.cache->by).of_head ? dims[1] : 1, dims[2]};
}

Dims3 scale_strides(const ir::Attention& attention, std::string_view name) {
  const auto [outer, heads, rows] = scale_dims(attention, name);
  ir::Layout layout = layout_of(attention, name);
  if (layout.kind == LayoutKind::strided) layout = {.kind = LayoutKind::bhsd};
  layout.strides = {};
  const Dims4 strides = ir::strides_of(layout, {outer, heads, rows, 1}, {heads, heads});
  const std::int64_t of_head = ir::info(attention.cache->by).of_head ? strides[1] : 0;
  return {strides[0], of_head, strides[2]};
}

Dims4 page_table_dims(const ir::Attention& attention, std::string_view name) {
  const Dims4 dims = logical_dims(attention, name);
  return {dims[0], 1, pages_for(dims[2], layout_of(attention, name).page), 1};
}

Uid add_offsets(const ir::Attention& attention, GraphBuilder& builder, const std::string& name) {
  const Dims4 dims{attention.dims[Dim::B] + 1, 1, 1, 1};
  return builder.add_tensor(offsets_name(name), offsets_dtype(attention), dims,
                            packed_strides(dims));
}

Uid add_stored(const ir::Attention& attention, GraphBuilder& builder, const std::string& name) {
  return add_dense(attention, builder, name, false);
}

Uid add_transposed(const ir::Attention& attention, GraphBuilder& builder, const std::string& name) {
  return add_dense(attention, builder, name, true);
}

Uid add_page_table(const ir::Attention& attention, GraphBuilder& builder, const std::string& name) {
  const Dims4 dims = page_table_dims(attention, name);
  return builder.add_tensor(page_table_name(attention, name), DType::i32, dims,
                            packed_strides(dims), {.alignment = 4});
}

Uid add_operand(const ir::Attention& attention, GraphBuilder& builder, const std::string& name,
                const Lengths& lengths) {
  const bool paged = layout_of(attention, name).kind == LayoutKind::paged;
  if (paged && !is_staged(attention, name)) return add_paged(attention, builder, name, lengths);
  return add_dense(attention, builder, name, name == "k");
}

Dims4 statistics_strides(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  const Dims4 dims{d[Dim::B], d[Dim::Hq], d[Dim::Sq], 1};
  if (layout_of(attention, "o").kind != LayoutKind::thd) return packed_strides(dims);
  return {dims[2] * dims[1], 1, dims[1], 1};
}

}  // namespace attn::engines
