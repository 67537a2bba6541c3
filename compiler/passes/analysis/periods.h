// Splits remainders of the column into periods.
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
  ir::ExprId condition = 0;  // the given one, with x - j * length for x % length
  Linear remainder;          // x - j * length
  std::int64_t length = 0;   // the period is where 0 <= remainder < length
};

inline constexpr std::int64_t kMostPeriods = 32;

// Periods of one x % length in the condition, where x rises or falls with the column and length is
// a constant: all that the piece can reach in any row. nullopt if there is no such remainder, if it
// indexes a captured tensor, or if the ends of the piece allow more than kMostPeriods:
//
//   [q_idx // 64 * 64, q_idx // 64 * 64 + 64)  has one of kv_idx % 64,
//   [q_idx, q_idx + 64)                        has two
//
// `forms` and `directions` must belong to the attention; nodes are added to its DAG.
std::optional<std::vector<Period>> periods_of(ir::Attention& attention, LinearForms& forms,
                                              Directions& directions, ir::ExprId condition,
                                              const Piece& piece);

}  // namespace attn::passes
