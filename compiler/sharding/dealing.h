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
  // "near their keys" (near_dealings)
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

// Dealings "near their keys" of tokens, whose rows and keys have the same homes. From contiguous
// and from folded ones, chunks change places two by two as long as ranks receive less, or work is
// more even. `travels` (by block, may be empty) are rows that need no keys. None for more than 16
// ranks, where trying takes too long, or for fewer than two blocks of rows a rank.
std::vector<Dealing> near_dealings(const WorkMap& map, const std::vector<bool>& travels, int ranks);

}  // namespace attn::sharding
