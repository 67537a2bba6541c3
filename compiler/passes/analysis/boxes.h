// Searches over boxes of scores, halved until interval arithmetic (range.h) decides.
#pragma once

#include <optional>
#include <span>

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/effort.h"
#include "compiler/passes/analysis/range.h"

namespace attn::passes {

// Whether it was shown that no score has all of `hold` true and all of `fail` false. Not shown
// where there is such a score, where a captured tensor or param has a say, and where more boxes
// than kMostProofBoxes would have to be looked at, or the effort ends. Dimensions must be bound.
inline constexpr int kMostProofBoxes = 1 << 16;
bool never(const ir::Attention& attention, std::span<const ir::ExprId> hold,
           std::span<const ir::ExprId> fail, Effort& effort);

// The largest distance of a box that may show a score, where distance(box) is the largest of the
// scores in it: exact when it is that of one score, unless more than kMostSearchedBoxes would have
// to be looked at, or the effort ends; then it is larger. Nothing when no score is shown.
// Dimensions must be bound.
inline constexpr int kMostSearchedBoxes = 1 << 15;
using Distance = std::int64_t (*)(const Box& box);
std::optional<std::int64_t> furthest(const ir::Attention& attention, Distance distance,
                                     Effort& effort);

// Rows and columns outside of which no score is shown; not always the narrowest.
struct Bounds {
  Range rows, columns;
  bool operator==(const Bounds&) const = default;
};
// Nothing: no score is shown.
std::optional<Bounds> bounds_of(const ir::Attention& attention, Effort& effort);

// With an effort of their own.
inline bool never(const ir::Attention& attention, std::span<const ir::ExprId> hold,
                  std::span<const ir::ExprId> fail) {
  Effort effort;
  return never(attention, hold, fail, effort);
}
inline std::optional<std::int64_t> furthest(const ir::Attention& attention, Distance distance) {
  Effort effort;
  return furthest(attention, distance, effort);
}
inline std::optional<Bounds> bounds_of(const ir::Attention& attention) {
  Effort effort;
  return bounds_of(attention, effort);
}

}  // namespace attn::passes
