// Which sharding takes least.
#pragma once

#include "compiler/sharding/estimate.h"
#include "compiler/sharding/sharding.h"
#include "compiler/target/context.h"

namespace attn::sharding {

using ranks::kMostRanks;

struct Choice {
  Sharding sharding;
  Estimate estimate;
  int considered = 0;  // shardings that were estimated
};

// Whether the attention can be divided among so many ranks, as its `shard` clause says. Errors:
// unsupported, with the reason; invalid_argument for an open dimension, or ranks outside 1 ..
// kMostRanks.
Status check_shardable(const ir::Attention& attention, int ranks);

// The sharding that is predicted to take least, forward and, with gradients, backward; of equal
// ones, the one with fewer bytes. Errors: those of check_shardable; of random dropout that no
// sharding can draw, those of check_draws.
Result<Choice> choose(const ir::Attention& attention, int ranks, const Estimating& estimating);

// What is needed to estimate.
Estimating estimating(const ir::Attention& attention, const WorkMap& map,
                      const target::Context& context, const Links& links);

// All rows and keys of an attention of these ranks that may be tried, the estimates aside.
std::vector<Sharding> shardings(const ir::Attention& attention, int ranks, const WorkMap& map);

}  // namespace attn::sharding
