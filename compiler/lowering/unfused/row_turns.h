// Rows in tiles.
#pragma once

#include <cstdint>
#include <vector>

namespace attn::lowering {

// `turns` tiles of `rows` adjacent rows, one behind the other from row `first` on.
struct RowTurns {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t turns = 1;
  bool operator==(const RowTurns&) const = default;
};

// All of `rows` rows, in tiles of at most `most` (below `rows`) and at least one: tiles that are
// all the same where that takes no more than twice as many, else the last one is smaller than the
// others. A loop, and what it leaves.
std::vector<RowTurns> in_turns(std::int64_t rows, std::int64_t most);

}  // namespace attn::lowering
