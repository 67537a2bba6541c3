// Per-batch lengths: what hides the rest of a batch's rows and columns.
#pragma once

#include <optional>

#include "compiler/ir/attention.h"
#include "compiler/lowering/cudnn/graph_builder.h"

namespace attn::lowering {

// Device tensors i32 [B,1,1,1] that a graph reads; absent: every batch has all of them.
struct Lengths {
  std::optional<Uid> q{};
  std::optional<Uid> kv{};
};

// What the address of a captured tensor is a multiple of, in bytes. Lengths are often a slice of
// something longer.
std::int64_t captured_alignment(std::string_view name);

// Whether the graph needs lengths: a `lengths` clause, or a layout that only works with them.
bool has_lengths(const ir::Attention& attention);

// Whether the rows, or the columns, of each batch end where its own length says: by a `lengths`
// clause or a thd tensor.
bool has_row_lengths(const ir::Attention& attention);
bool has_column_lengths(const ir::Attention& attention);

// Whether the engine will compute rows that lie past the lengths of q: that for a single row never
// looks at them. Then q is read and the results are written through copies, which know better.
bool ignores_row_lengths(const ir::Attention& attention);

Lengths add_lengths(const ir::Attention& attention, GraphBuilder& builder);

// `score` where row and column lie within the lengths, else -inf: the recorded shape of cuDNN's
// padding mask. cuDNN reads it together with the sizes that the products are given.
Value mask_padding(GraphBuilder& builder, const Lengths& lengths, Value score, SourcePos pos);

}  // namespace attn::lowering
