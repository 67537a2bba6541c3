#include "compiler/engines/shared/row_turns.h"

#include <algorithm>

namespace attn::engines {
namespace {

// The largest divisor from `least` to `most`, if possible a multiple of 8; 0 if there is none.
std::int64_t divisor(std::int64_t rows, std::int64_t least, std::int64_t most) {
  for (const std::int64_t step : {std::int64_t{8}, std::int64_t{1}}) {
    for (std::int64_t d = most / step * step; d >= least && d > 0; d -= step) {
      if (rows % d == 0) return d;
    }
  }
  return 0;
}

}  // namespace

std::vector<RowTurns> in_turns(std::int64_t rows, std::int64_t most) {
  most = std::max<std::int64_t>(most, 1);
  if (const std::int64_t same = divisor(rows, (most + 1) / 2, most); same > 0) {
    return {{0, same, rows / same}};
  }
  if (most > 16) most -= most % 8;
  const std::int64_t turns = rows / most;
  return {{0, most, turns}, {turns * most, rows - turns * most, 1}};
}

}  // namespace attn::engines
