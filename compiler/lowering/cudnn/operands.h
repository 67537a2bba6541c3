// q, k, v and o as graph tensors, whatever their layouts; do, dq, dk and dv lie as they do.
#pragma once

#include <string>

#include "compiler/ir/attention.h"
#include "compiler/lowering/cudnn/graph_builder.h"
#include "compiler/lowering/cudnn/lengths.h"

namespace attn::lowering {

// Whose layout a tensor has: of "dq" that of "q", of "do" and the statistics ("lse", "max",
// "sum_exp") that of "o"; of q, k, v and o their own. The others have none.
std::string_view layout_owner(std::string_view name);
bool is_statistic(std::string_view name);
const ir::Layout& layout_of(const ir::Attention& attention, std::string_view name);

// [B,H,S,D] of "q", "k", "v" or "o", or of their gradients.
Dims4 logical_dims(const ir::Attention& attention, std::string_view name);

// What is bound: as above, but of a paged tensor the pool [pages,H,page,D].
Dims4 stored_dims(const ir::Attention& attention, std::string_view name);
Dims4 stored_strides(const ir::Attention& attention, std::string_view name);

// [B, 1, pages of a batch, 1]
Dims4 page_table_dims(const ir::Attention& attention, std::string_view name);

// The tensor as it lies in memory, of a paged one the pool, or its copy; k is not transposed.
Uid add_stored(const ir::Attention& attention, GraphBuilder& builder, const std::string& name);
// The same as its transpose [B,H,D,S].
Uid add_transposed(const ir::Attention& attention, GraphBuilder& builder, const std::string& name);
// Of "k" or "v", paged.
Uid add_page_table(const ir::Attention& attention, GraphBuilder& builder, const std::string& name);

// The tensor that a product reads or writes; k as its transpose [B,H,D,S].
Uid add_operand(const ir::Attention& attention, GraphBuilder& builder, const std::string& name,
                const Lengths& lengths);

// Where each batch of a thd tensor begins: q, k, v, o or the statistics.
Uid add_offsets(const ir::Attention& attention, GraphBuilder& builder, const std::string& name);

// Of [B,Hq,Sq,1]: row-major, or with the heads last where o is thd.
Dims4 statistics_strides(const ir::Attention& attention);

}  // namespace attn::lowering
