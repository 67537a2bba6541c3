#include "compiler/passes/cover.h"

#include <algorithm>
#include <queue>
#include <vector>

#include "compiler/passes/range.h"

namespace attn::passes {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Op;

constexpr int kMostBoxes = 1 << 15;  // looked at, for each side
constexpr double kWorthwhile = 7.0 / 8;

enum class Side { right, left };

struct Candidate {
  Box box;
  std::int64_t distance = 0;  // of its furthest corner
  std::int64_t scores = 0;

  // The furthest comes first, and of those the smallest.
  bool operator<(const Candidate& other) const {
    return distance != other.distance ? distance < other.distance : scores > other.scores;
  }
};

std::int64_t length(const Range& range) { return range.high - range.low + 1; }

Candidate candidate(const Box& box, Side side) {
  const std::int64_t distance =
      side == Side::right ? box.column.high - box.row.low : box.row.high - box.column.low;
  return {box, distance, length(box.row) * length(box.column)};
}

std::pair<Box, Box> halves(const Box& box) {
  std::pair<Box, Box> parts(box, box);
  const bool by_rows = length(box.row) > length(box.column);
  const Range& whole = by_rows ? box.row : box.column;
  const std::int64_t middle = whole.low + length(whole) / 2;
  (by_rows ? parts.first.row : parts.first.column).high = middle - 1;
  (by_rows ? parts.second.row : parts.second.column).low = middle;
  return parts;
}

// The furthest distance of a score that may be visible; nothing when none is.
std::optional<std::int64_t> furthest(const ir::Attention& attention, Ranges& ranges, Side side) {
  const auto hidden = [&](ExprId mask) { return ranges[mask].is_false(); };
  const auto shown = [&](ExprId mask) { return ranges[mask].is_true(); };
  std::priority_queue<Candidate> queue;
  queue.push(candidate(whole_box(attention), side));
  for (int looked = 0; !queue.empty(); ++looked) {
    const Candidate next = queue.top();
    queue.pop();
    if (looked == kMostBoxes) return next.distance;
    ranges.look_at(next.box);
    if (std::ranges::any_of(attention.masks, hidden)) continue;
    if (next.scores == 1 || std::ranges::all_of(attention.masks, shown)) return next.distance;
    const auto [first, second] = halves(next.box);
    queue.push(candidate(first, side));
    queue.push(candidate(second, side));
  }
  return std::nullopt;
}

bool is_tighter(const std::optional<std::int64_t>& bound, const std::optional<std::int64_t>& than) {
  return bound && (!than || *bound < *than);
}

// What the cover adds to the band.
Band additions(const Band& band, const Band& cover, bool backward) {
  Band added;
  if (!backward && is_tighter(cover.right, band.right)) added.right = cover.right;
  const bool causal = band.right && *band.right <= 0;
  const bool beside_right = band.right || added.right;
  if ((backward ? causal : beside_right) && is_tighter(cover.left, band.left)) {
    added.left = cover.left;
  }
  return added;
}

Band both(Band band, const Band& added) {
  if (added.right) band.right = added.right;
  if (added.left) band.left = added.left;
  return band;
}

void add_bound(ir::Attention& attention, Op from, Op to, std::int64_t bound, ir::SourcePos pos) {
  ir::Dag& dag = attention.dag;
  const ExprId distance = dag.add(Op::sub_, {dag.leaf(to, pos), dag.leaf(from, pos)}, pos);
  attention.masks.push_back(dag.add(Op::le_, {distance, dag.integer(bound, pos)}, pos));
}

}  // namespace

Band cover_of(const ir::Attention& attention) {
  Band cover;
  const ir::Dims& dims = attention.dims;
  if (!dims.bound() || attention.masks.empty() || dims[Dim::Sq] == 0 || dims[Dim::Skv] == 0) {
    return cover;
  }
  Ranges ranges(attention, attention.masks);
  const auto right = furthest(attention, ranges, Side::right);
  const auto left = furthest(attention, ranges, Side::left);
  if (right && *right < dims[Dim::Skv] - 1) cover.right = right;
  if (left && *left < dims[Dim::Sq] - 1) cover.left = left;
  return cover;
}

ir::Attention with_cover(const ir::Attention& attention, bool backward) {
  if (!attention.dims.bound()) return attention;
  const MaskForm form = mask_form(attention);
  if (form.residual.empty()) return attention;
  const Band band = full_band(form, attention.dims);
  const Band added = additions(band, cover_of(attention), backward);
  if (band_share(attention.dims, both(band, added)) >
      kWorthwhile * band_share(attention.dims, band)) {
    return attention;
  }
  ir::Attention covered = attention;
  const ir::SourcePos pos = attention.dag[form.residual.front()].pos;
  if (added.right) add_bound(covered, Op::row_, Op::column_, *added.right, pos);
  if (added.left) add_bound(covered, Op::column_, Op::row_, *added.left, pos);
  return covered;
}

}  // namespace attn::passes
