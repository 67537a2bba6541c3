// Tiles of score rows, for programs that keep scores in memory.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan/program.h"

namespace attn::codegen {

// Query heads that share keys form a group: B Hkv consecutive groups of Hq / Hkv * Sq rows, in the
// order of [B,Hq,Sq]. A tile has T adjacent rows of each of n adjacent groups, and tensors of its
// scores are [n,T,columns].
struct RowTile {
  std::int64_t groups = 1;      // n
  std::int64_t rows = 1;        // T
  std::int64_t group_rows = 1;  // Hq / Hkv * Sq
  plan::TensorOperand first;    // i64: the tile's first row of [B,Hq,Sq]
  bool again = false;  // a tile with at least as many rows came before, in the same tensors

  std::int64_t all_rows() const { return groups * rows; }

  // C++ text: the row of [B,Hq,Sq] of the tile's row `local` (a name). The kernel reads the tensor
  // `first` with this name.
  std::string row_text(const std::string& local) const;
};

}  // namespace attn::codegen
