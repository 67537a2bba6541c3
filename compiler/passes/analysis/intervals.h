// Masks as intervals of the columns that each row sees, as expressions of the row.
//
//   q_idx >= kv_idx && q_idx - kv_idx < 256     [max(0, q_idx - 255), q_idx + 1)
//   q_idx // 64 == kv_idx // 64                 [q_idx // 64 * 64, q_idx // 64 * 64 + 64)
//   q_idx // 8 == kv_idx // 8 && kv_idx % 8 < 2 [q_idx // 8 * 8, q_idx // 8 * 8 + 2)
//   kv_idx < n[b] || q_idx >= kv_idx            [0, max(n[b], q_idx + 1))
//   doc[b, q_idx] == doc[b, kv_idx]             [first(doc[b, kv_idx] >= doc[b, q_idx]),
//                                                first(doc[b, kv_idx] > doc[b, q_idx]))
//                                               where doc is declared monotone
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/effort.h"

namespace attn::passes {

// One side of an interval: a column, 0 .. Skv.
struct Edge {
  ir::ExprId value = 0;  // integer; does not depend on the column
  // Conditions that depend on the column and, once true, stay true in all later columns. Each means
  // the first column where it holds, or Skv if there is none: a binary search of log2(Skv) steps.
  std::vector<ir::ExprId> firsts{};

  bool operator==(const Edge&) const = default;
};

// The columns low <= column < high: none if low >= high or if the condition is false. Values may
// lie outside of 0 .. Skv only in rows whose interval is empty.
struct Interval {
  Edge low;                               // the largest of its value and its firsts
  Edge high;                              // the smallest of its value and its firsts
  std::optional<ir::ExprId> condition{};  // boolean; does not depend on the column
  bool exact = true;                      // the mask shows all of it

  bool operator==(const Interval&) const = default;
};

// For every batch, head and row, the visible columns lie within the union of the intervals.
// Intervals may overlap and are unordered.
struct VisibleColumns {
  // The analyzed attention; its DAG also has the expressions of the intervals.
  ir::Attention attention;
  std::vector<Interval> intervals;
  Exactness exactness = Exactness::exact;  // of their union
  bool stopped = false;  // the analysis reached its limit: some intervals are too wide
};

inline constexpr std::size_t kMostIntervals = 64;

// Intervals of the conjunction of the masks (MaskAnalysis::columns). Lengths are ignored. The
// attention must be simplified; its dimensions may be open.
//
// Exact for
// - conditions that do not depend on the column;
// - orderings, == and != of integers whose difference is a multiple of one expression of the column
//   plus a rest that does not depend on it (linear.h). The expression may be the column itself, //,
//   abs, min, max and select of such expressions, and // and % whose quotient is the same in all
//   columns;
// - orderings of integers, and captured booleans, that change at most once from the first column to
//   the last (direction.h);
// - x % c of the column and a constant, if the rest of the conjunction leaves at most kMostPeriods
//   periods (periods.h);
// - && || ! and select of these.
//
// Anything else may show all columns, including expressions in the mask that may leave 32 bits.
// Expressions in an interval never do. More than kMostIntervals are merged into one that contains
// them, and so are those of a mask that exceeds the effort (effort.h). A bound or condition may
// have no value (a gather out of range, a division by 0) where the mask itself does not depend on
// it: there the interval says nothing, and all columns may be visible. The deadline, which may be
// null, ends the effort.
VisibleColumns visible_columns(const ir::Attention& attention,
                               const planning::Deadline* deadline = nullptr);

// "[max(0, q_idx - 255), q_idx + 1)", "[0, q_idx + 1) where b < 2", in the syntax of the language.
// A missing bound is 0 or Skv.
std::string to_source(const VisibleColumns& columns, const Interval& interval);

}  // namespace attn::passes
