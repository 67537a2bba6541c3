// Ways to deal blocks of rows, or of keys, to ranks: each rank gets about as many blocks, because
// what comes before and after the attention takes as long for every row. Chunks differ by at most a
// block, and a rank has up to 16 of them.
#pragma once

#include <string_view>
#include <vector>

#include "compiler/sharding/sets.h"
#include "compiler/sharding/work.h"

namespace attn::sharding {

struct Dealing {
  // "contiguous", "folded" (zigzag), "striped", "balanced" (the heaviest first, each to the rank
  // that has least), "swapped" (contiguous, then blocks change places until the work is even),
  // "near their keys" (nearness.h)
  std::string_view name;
  Blocks blocks;
  std::vector<int> owners;  // by block
  int ranks = 1;

  Intervals of(int rank) const;
  std::vector<std::int64_t> blocks_of(int rank) const;  // ascending
};

Dealing contiguous(const Blocks& blocks, int ranks);

// The ways that may be best for work of these weights, by block: of chunks of several sizes.
std::vector<Dealing> dealings(const Blocks& blocks, const std::vector<double>& weights, int ranks);

// Each rank's blocks dealt again to so many: rank r to ranks r * parts .. r * parts + parts - 1.
Dealing divided(const Dealing& dealing, int parts);

// Work of each block of rows (or keys), with all keys (or rows).
std::vector<double> weights_of_rows(const WorkMap& map);
std::vector<double> weights_of_keys(const WorkMap& map);

}  // namespace attn::sharding
