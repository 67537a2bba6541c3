// q, k, v and o as graph tensors in any layout; do, dq, dk and dv have the layouts of o, q, k and
// v.
#pragma once

#include <string>

#include "compiler/engines/shared/graph_builder.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/ir/attention.h"

namespace attn::engines {

// The cotangent of lse, which has its dims and layout.
inline constexpr const char* kLseCotangent = "dlse";

// The tensor whose layout `name` has: "q" for "dq", "o" for "do" and the statistics ("lse", "dlse",
// "max", "sum_exp"); q, k, v and o have their own. Other tensors have none.
std::string_view layout_owner(std::string_view name);
bool is_statistic(std::string_view name);
const ir::Layout& layout_of(const ir::Attention& attention, std::string_view name);

// [B,H,S,D] of "q", "k", "v" or "o", or of their gradients.
Dims4 logical_dims(const ir::Attention& attention, std::string_view name);

// The bound tensor: as above, but the pool [pages,H,page,D] for a paged one.
Dims4 stored_dims(const ir::Attention& attention, std::string_view name);
Dims4 stored_strides(const ir::Attention& attention, std::string_view name);

// Whether rows of "k" or "v" are bytes of a format (ir::Layout::rows), which are the last dimension
// of stored_dims; the type of what is stored; and the bytes of a row.
bool has_formatted_rows(const ir::Attention& attention, std::string_view name);
DType stored_dtype(const ir::Attention& attention, std::string_view name);
std::int64_t bytes_of_row(const ir::Attention& attention, std::string_view name);

// The scales of each key of "k" or "v" (ir::has_token_scales), as they are stored: like rows of its
// layout with one column, and one head if heads share them; row-major beside strides that the spec
// states.
using Dims3 = std::array<std::int64_t, 3>;
Dims3 scale_dims(const ir::Attention& attention, std::string_view name);
Dims3 scale_strides(const ir::Attention& attention, std::string_view name);

// [B, 1, pages per batch, 1]
Dims4 page_table_dims(const ir::Attention& attention, std::string_view name);

// The tensor as stored (for a paged one the pool), or its copy; k is not transposed.
Uid add_stored(const ir::Attention& attention, GraphBuilder& builder, const std::string& name);
// The same, transposed: [B,H,D,S].
Uid add_transposed(const ir::Attention& attention, GraphBuilder& builder, const std::string& name);
// The page table of a paged "k" or "v".
Uid add_page_table(const ir::Attention& attention, GraphBuilder& builder, const std::string& name);

// The tensor that a product reads or writes; k transposed, [B,H,D,S].
Uid add_operand(const ir::Attention& attention, GraphBuilder& builder, const std::string& name,
                const Lengths& lengths);

// Offsets of the batches of a thd tensor: q, k, v, o or the statistics.
Uid add_offsets(const ir::Attention& attention, GraphBuilder& builder, const std::string& name);

// Strides of [B,Hq,Sq,1]: row-major, or with the heads last where o is thd.
Dims4 statistics_strides(const ir::Attention& attention);

inline constexpr std::int64_t kVector = 8;  // elements of 16 bits that kernels move at a time

// Whether the tensor's rows can be moved so: contiguous, in multiples of kVector elements.
inline bool moves_in_vectors(const Dims4& dims, const Dims4& strides) {
  bool aligned = dims[3] % kVector == 0 && strides[3] == 1;
  for (std::size_t axis = 0; axis < 3; ++axis) aligned &= strides[axis] % kVector == 0;
  return aligned;
}

}  // namespace attn::engines
