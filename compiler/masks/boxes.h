// Searches that halve boxes of scores until interval arithmetic (range.h) decides.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/masks/band.h"
#include "compiler/masks/effort.h"
#include "compiler/masks/range.h"

namespace attn::masks {

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

// What the masks show of a box of scores.
enum class Block : std::uint8_t {
  empty,   // no score is visible
  full,    // every score is visible
  partial  // anything else, or unknown
};

// Decides it by ranges: partial means unknown, also for a single score that inputs decide.
class MaskBoxes {
 public:
  // The attention and what is known of inputs (or null) must outlive this.
  MaskBoxes(const ir::Attention& attention, std::span<const ir::ExprId> masks,
            const KnownInputs* known = nullptr)
      : MaskBoxes(attention, masks, {}, known) {}
  // Shows the scores where all masks of `hold` are true and all of `fail` are false.
  MaskBoxes(const ir::Attention& attention, std::span<const ir::ExprId> hold,
            std::span<const ir::ExprId> fail, const KnownInputs* known = nullptr);

  Block of(const Box& box) { return of(box, ranges_.all()); }
  // The same, by what was unsettled in a box that holds this one, or all().
  Block of(const Box& box, const Unsettled& within);
  const Unsettled& all() const { return ranges_.all(); }
  // What boxes within the last one evaluate.
  Unsettled unsettled() { return ranges_.unsettled(); }
  // Whether boxes within the last one, which is partial, are all partial too.
  bool is_settled() const { return ranges_.are_settled(); }

 private:
  std::vector<ir::ExprId> roots_;
  std::vector<std::uint8_t> holds_, fails_;  // by id: bool, of the roots
  Ranges ranges_;
};

// A box that a search has to look at.
struct OpenBox {
  Box box;
  Unsettled within;
};

// The box cut in two along an axis of more than one index.
std::pair<Box, Box> halves(const Box& box, Range Box::*axis);

// The largest distance of a visible score from the diagonal, on either side. No bound on a side
// whose corner of the score matrix may be visible, and none if nothing is visible or a dimension is
// open.
//
// Found by halving boxes of scores that are not provably hidden, the furthest from the diagonal
// first. Exact for masks of indices and constants, unless that takes too many boxes. Captured
// tensors are unknown: scores that only they decide may be visible.
Band cover_of(const ir::Attention& attention, Effort& effort);

// Rows and columns that contain all visible scores; not always the narrowest.
struct Bounds {
  Range rows, columns;
  bool operator==(const Bounds&) const = default;
};
// nullopt if no score is visible.
std::optional<Bounds> bounds_of(const ir::Attention& attention, Effort& effort);

// The same with a new Effort.
inline bool never(const ir::Attention& attention, std::span<const ir::ExprId> hold,
                  std::span<const ir::ExprId> fail) {
  Effort effort;
  return never(attention, hold, fail, effort);
}
inline std::optional<std::int64_t> furthest(const ir::Attention& attention, Distance distance) {
  Effort effort;
  return furthest(attention, distance, effort);
}
inline Band cover_of(const ir::Attention& attention) {
  Effort effort;
  return cover_of(attention, effort);
}
inline std::optional<Bounds> bounds_of(const ir::Attention& attention) {
  Effort effort;
  return bounds_of(attention, effort);
}

}  // namespace attn::masks
