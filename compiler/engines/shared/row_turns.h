// Splits rows into tiles.
#pragma once

#include <cstdint>
#include <vector>

namespace attn::engines {

// `turns` consecutive tiles of `rows` rows each, from row `first` on.
struct RowTurns {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t turns = 1;
  bool operator==(const RowTurns&) const = default;
};

// Splits `rows` rows into tiles of at most `most` (below `rows`) and at least one row: equal tiles
// if that takes at most twice as many, else a loop of equal tiles and a smaller last one.
std::vector<RowTurns> in_turns(std::int64_t rows, std::int64_t most);

}  // namespace attn::engines
