// Remainders of the column, period by period.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/passes/analysis/direction.h"
#include "compiler/passes/analysis/linear.h"
#include "compiler/passes/analysis/pieces.h"

namespace attn::passes {

// The columns where x // length is one value, j.
struct Period {
  ir::ExprId condition = 0;  // the one that was asked about, with x - j * length for x % length
  Linear remainder;          // x - j * length
  std::int64_t length = 0;   // the part is where 0 <= remainder < length
};

inline constexpr std::int64_t kMostPeriods = 32;

// Of one x % length in the condition, where x rises or falls with the column and length is a
// constant: all periods that the piece can reach into, whatever the row. Nothing where there is no
// such remainder, or a captured tensor is read at it, or the ends of the piece do not say that
// there are at most kMostPeriods:
//
//   [q_idx // 64 * 64, q_idx // 64 * 64 + 64)  has one of kv_idx % 64,
//   [q_idx, q_idx + 64)                        has two
//
// The forms and directions are those of the attention; nodes are added to its DAG.
std::optional<std::vector<Period>> periods_of(ir::Attention& attention, LinearForms& forms,
                                              Directions& directions, ir::ExprId condition,
                                              const Piece& piece);

}  // namespace attn::passes
