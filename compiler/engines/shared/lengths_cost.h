// The lengths that predictions assume: which batches are how long is known at a call alone.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::engines {

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
