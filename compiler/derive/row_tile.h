// Some rows of the scores, for programs that keep them in memory.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan/program.h"

namespace attn::derive {

// The query heads that share keys are a group: B Hkv groups of Hq / Hkv * Sq rows, one behind the
// other as in [B,Hq,Sq]. A tile has T adjacent rows of each of n adjacent groups, and tensors of
// its scores are [n,T,columns].
struct RowTile {
  std::int64_t groups = 1;      // n
  std::int64_t rows = 1;        // T
  std::int64_t group_rows = 1;  // Hq / Hkv * Sq
  plan::TensorOperand first;    // i64: which row of [B,Hq,Sq] is the tile's first
  bool again = false;           // the tensors have been made, of a tile with as many rows or more

  std::int64_t all_rows() const { return groups * rows; }

  // C++ text: the row of [B,Hq,Sq] that is row `local` (a name) of the tile. The kernel has the
  // parameter kFirstParameter.
  std::string row_text(const std::string& local) const;
};
inline constexpr const char* kFirstParameter = "const long long* first";

}  // namespace attn::derive
