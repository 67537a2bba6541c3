// Searches that halve boxes of scores until interval arithmetic (range.h) decides.
#pragma once

#include <optional>
#include <span>

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/effort.h"
#include "compiler/passes/analysis/range.h"

namespace attn::passes {

// True if proven that no score has all of `hold` true and all of `fail` false. False if there is
// such a score, if the answer depends on a captured tensor or param, or if the proof exceeds
// kMostProofBoxes boxes or the effort. Dimensions must be bound.
inline constexpr int kMostProofBoxes = 1 << 16;
bool never(const ir::Attention& attention, std::span<const ir::ExprId> hold,
           std::span<const ir::ExprId> fail, Effort& effort);

// The largest distance of a score that may be visible, where distance(box) is the largest distance
// in a box. An upper bound if the search exceeds kMostSearchedBoxes boxes or the effort. nullopt if
// no score is visible. Dimensions must be bound.
inline constexpr int kMostSearchedBoxes = 1 << 15;
using Distance = std::int64_t (*)(const Box& box);
std::optional<std::int64_t> furthest(const ir::Attention& attention, Distance distance,
                                     Effort& effort);

// Rows and columns that contain all visible scores; not always the narrowest.
struct Bounds {
  Range rows, columns;
  bool operator==(const Bounds&) const = default;
};
// nullopt if no score is visible.
std::optional<Bounds> bounds_of(const ir::Attention& attention, Effort& effort);

// With a new Effort.
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
