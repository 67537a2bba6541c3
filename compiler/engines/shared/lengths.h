// Per-batch lengths, which hide the remaining rows and columns of a batch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/engines/shared/graph_builder.h"
#include "compiler/ir/attention.h"

namespace attn::engines {

// Device tensors i32 [B,1,1,1] that a graph reads; if absent, every batch has all rows or columns.
struct Lengths {
  std::optional<Uid> q{};
  std::optional<Uid> kv{};
};

// Alignment of a captured tensor, in bytes. Lengths are often a slice of a longer tensor.
std::int64_t captured_alignment(std::string_view name, DType dtype = DType::f32);

// Whether the graph needs lengths: a `lengths` clause, or a layout that only works with them.
bool has_lengths(const ir::Attention& attention);

// Whether each batch has its own number of rows, or columns: by a `lengths` clause or a thd tensor.
bool has_row_lengths(const ir::Attention& attention);
bool has_column_lengths(const ir::Attention& attention);

// Whether the engine computes rows past the lengths of q: the engine for a single row ignores
// these. Then q is read and results are written through copies that respect the lengths.
bool ignores_row_lengths(const ir::Attention& attention);

Lengths add_lengths(const ir::Attention& attention, GraphBuilder& builder);

// `score` where row and column are within the lengths, else -inf: the recorded form of cuDNN's
// padding mask. cuDNN reads it together with the sizes passed to the products.
Value mask_padding(GraphBuilder& builder, const Lengths& lengths, Value score, SourcePos pos);

// The lengths that predictions assume: which batches are how long is known at a call alone.
//
// Batches that are taken to be equally long.
struct BatchesOfLength {
  double batches = 0;
  std::int64_t rows = 0, keys = 0;
};

inline constexpr std::size_t kMostLengths = 4;

// All batches, in at most kMostLengths groups of similar length, the shortest first: by the lengths
// that the spec declares (`lengths kv = ..`), and without a declaration half of all rows or keys.
// Groups of batches by length; without lengths, one group of full ones. Dimensions must be bound.
std::vector<BatchesOfLength> expected_lengths(const ir::Attention& attention);

// The keys of the last batch, which may end last, as a share of those of the longest one.
double share_of_last_batch(const ir::Attention& attention);

// Whether lengths are assumed that the spec does not declare.
bool assumes_lengths(const ir::Attention& attention);

// The attention of such batches alone, which has no lengths: its sizes are theirs, and masks that
// read lengths, as those aligned at the bottom right do, read constants. For analysis alone: what
// else reads sizes still has those of the whole.
ir::Attention of_length(const ir::Attention& attention, const BatchesOfLength& length);

}  // namespace attn::engines
