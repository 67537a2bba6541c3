// Random dropout of parts: attnc's kernels draw numbers for 32 keys at a time, so that a part has
// keys of the whole attention 32 by 32, and knows where its rows and keys are when it is compiled.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/sharding/sharding.h"
#include "compiler/sharding/work.h"
#include "runtime/base/status.h"

namespace attn::sharding {

using Numbers = std::vector<std::int64_t>;  // of blocks, ascending

// Keys of `keys` that are seen, and as many others as it takes to be 32 by 32 in few pieces: they
// are hidden. Not enough if `keys`, which are all that the part may have, are scattered themselves.
Numbers drawn_keys(const Numbers& seen, const Numbers& keys, std::int64_t unit);

// What ir::check_draws_by_32 says of the part's attention, without making it.
bool draws_by_32(const ranks::Part& part);

// Whether kernels can draw the numbers of all parts. Errors: those of ir::check_draws_by_32, for
// the first part of which they cannot.
Status check_draws(const Sharding& sharding, const WorkMap& map, const ir::Attention& attention);

}  // namespace attn::sharding
