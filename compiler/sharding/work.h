// What the mask of an attention gives to do, by blocks of scores: what dealing and sending decide
// by.
#pragma once

#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/masks/effort.h"
#include "compiler/masks/range.h"
#include "compiler/sharding/sets.h"

namespace attn::sharding {

struct WorkMap {
  Blocks rows, keys;
  // Row-major, a block of rows by a block of keys: in which share of the batches and heads a kernel
  // computes the block. 0: no score of it is visible in any batch and head, which is proven. What
  // depends on inputs that are not known counts as visible.
  std::vector<float> shares;
  masks::Exactness exactness = masks::Exactness::exact;  // of what is visible
  bool draws = false;  // random dropout, so that parts are as draws.h says

  float at(std::int64_t row, std::int64_t key) const {
    return shares[static_cast<std::size_t>(row * keys.count() + key)];
  }
  double total() const;
};

// Blocks of 128 rows and keys, or smaller ones so that each rank has some, or larger ones so that
// there are no more than a few thousand. Of at least `together`, unless ranks would have none.
Blocks blocks_of(std::int64_t size, int ranks, std::int64_t together);

// The work of all batches and heads. `known`, which may be null, are the inputs that the mask
// reads. Dimensions must be bound.
WorkMap work_map(const ir::Attention& attention, int ranks, const masks::KnownInputs* known);

}  // namespace attn::sharding
