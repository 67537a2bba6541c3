// Rows near the keys that they see: deals tokens so that ranks receive few keys of others.
#pragma once

#include <vector>

#include "compiler/sharding/dealing.h"
#include "compiler/sharding/work.h"

namespace attn::sharding {

// Dealings "near their keys" of tokens, whose rows and keys have the same homes. From contiguous
// and from folded ones, chunks change places two by two as long as ranks receive less, or work is
// more even. `travels` (by block, may be empty) are rows that need no keys. None for more than 16
// ranks, where trying takes too long, or for fewer than two blocks of rows a rank.
std::vector<Dealing> near_dealings(const WorkMap& map, const std::vector<bool>& travels, int ranks);

}  // namespace attn::sharding
