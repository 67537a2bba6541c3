#include "compiler/passes/analysis/pieces.h"

#include <algorithm>
#include <iterator>

namespace attn::passes {
namespace {

using ir::ExprId;
using ir::Op;

template <typename T>
bool contains(const std::vector<T>& list, const T& value) {
  return std::ranges::find(list, value) != list.end();
}

template <typename T>
void add_once(std::vector<T>& list, const T& value) {
  if (!contains(list, value)) list.push_back(value);
}

}  // namespace

PieceAlgebra::PieceAlgebra(const ir::Attention& attention, LinearForms& forms, Effort& effort)
    : dag_(attention.dag), forms_(forms), effort_(effort), columns_(forms.size(ir::Dim::Skv)) {}

Pieces PieceAlgebra::all() const { return {{{linear_constant(0)}, {columns_}}}; }

Pieces PieceAlgebra::anything() const {
  Pieces pieces = all();
  pieces[0].exact = false;
  return pieces;
}

Pieces PieceAlgebra::from(const Linear& low) {
  Pieces pieces = all();
  raise(pieces[0], low);
  return pieces;
}

Pieces PieceAlgebra::below(const Linear& high) {
  Pieces pieces = all();
  lower(pieces[0], high);
  return pieces;
}

Pieces PieceAlgebra::intersect(const Pieces& xs, const Pieces& ys) {
  if (effort_.is_spent()) return xs.empty() || ys.empty() ? Pieces() : anything();
  Pieces both;
  for (const Piece& x : xs) {
    for (const Piece& y : ys) {
      Piece piece = x;
      restrict(piece, y);
      if (!is_empty(piece)) add_once(both, piece);
      if (both.size() > kMostIntervals) return intersect(hull(xs), hull(ys));
    }
  }
  return both;
}

Pieces PieceAlgebra::unite(Pieces xs, const Pieces& ys) {
  if (effort_.is_spent()) return xs.empty() && ys.empty() ? Pieces() : anything();
  for (const Piece& y : ys) add_once(xs, y);
  if (contains(xs, all()[0])) return all();
  const Piece whole = anything()[0];
  if (contains(xs, whole)) {
    std::erase_if(xs, [&](const Piece& x) { return !x.exact && x != whole; });
  }
  return xs.size() > kMostIntervals ? hull(xs) : xs;
}

bool PieceAlgebra::is_at_most(const Linear& x, const Linear& y) {
  constexpr std::size_t kTerm = 64;  // operations per term
  const std::size_t terms = 1 + x.terms.size() + y.terms.size();
  if (!effort_.spend(static_cast<std::int64_t>(kTerm * terms))) return false;
  const std::optional<Range> range = forms_.range_of(y - x);
  return range && range->low >= 0;
}

void PieceAlgebra::raise(Piece& piece, const Linear& low) {
  const auto is_above = [&](const Linear& other) { return is_at_most(low, other); };
  if (std::ranges::any_of(piece.lows, is_above)) return;
  std::erase_if(piece.lows, [&](const Linear& other) { return is_at_most(other, low); });
  piece.lows.push_back(low);
}

void PieceAlgebra::lower(Piece& piece, const Linear& high) {
  const auto is_below = [&](const Linear& other) { return is_at_most(other, high); };
  if (std::ranges::any_of(piece.highs, is_below)) return;
  std::erase_if(piece.highs, [&](const Linear& other) { return is_at_most(high, other); });
  piece.highs.push_back(high);
}

void PieceAlgebra::restrict(Piece& piece, const Piece& by) {
  for (const Linear& low : by.lows) raise(piece, low);
  for (const Linear& high : by.highs) lower(piece, high);
  for (const ExprId id : by.low_firsts) add_once(piece.low_firsts, id);
  for (const ExprId id : by.high_firsts) add_once(piece.high_firsts, id);
  for (const ExprId id : by.conditions) add_once(piece.conditions, id);
  piece.exact &= by.exact;
}

bool PieceAlgebra::is_empty(const Piece& piece) {
  return std::ranges::any_of(piece.lows, [&](const Linear& low) {
    return std::ranges::any_of(piece.highs,
                               [&](const Linear& high) { return is_at_most(high, low); });
  });
}

Pieces PieceAlgebra::hull(const Pieces& pieces) {
  const auto range_of = [&](const Linear& bound) { return *forms_.range_of(bound); };
  Range ends{INT32_MAX, INT32_MIN};
  for (const Piece& piece : pieces) {
    Range own;
    for (const Linear& low : piece.lows) own.low = std::max(own.low, range_of(low).low);
    for (const Linear& high : piece.highs) own.high = std::min(own.high, range_of(high).high);
    ends = {std::min(ends.low, own.low), std::max(ends.high, own.high)};
  }
  Pieces one = anything();
  raise(one[0], linear_constant(ends.low));
  lower(one[0], linear_constant(ends.high));
  return one;
}

std::vector<Interval> PieceAlgebra::written(const Pieces& pieces) {
  std::vector<Interval> intervals;
  for (const Piece& piece : pieces) intervals.push_back(written(piece));
  merge(intervals);
  std::stable_partition(intervals.begin(), intervals.end(), [&](const Interval& interval) {
    return interval.low.firsts.empty() && dag_[interval.low.value].is(Op::const_int_);
  });
  return intervals;
}

Interval PieceAlgebra::written(const Piece& piece) {
  Interval interval{{extreme(Op::max_, piece.lows), piece.low_firsts},
                    {extreme(Op::min_, piece.highs), piece.high_firsts},
                    {},
                    piece.exact};
  if (!piece.conditions.empty()) interval.condition = joined(Op::and_, piece.conditions);
  return interval;
}

void PieceAlgebra::merge(std::vector<Interval>& intervals) {
  for (auto x = intervals.begin(); x != intervals.end(); ++x) {
    for (auto y = std::next(x); y != intervals.end();) {
      y = absorb(*x, *y) ? intervals.erase(y) : std::next(y);
    }
  }
}

// Merges two intervals with the same low or high.
bool PieceAlgebra::absorb(Interval& x, const Interval& y) {
  if (x.condition != y.condition || x.exact != y.exact) return false;
  if (x.low == y.low && x.high.firsts.empty() && y.high.firsts.empty()) {
    x.high.value = larger(x.high.value, y.high.value);
    return true;
  }
  if (x.high == y.high && x.low.firsts.empty() && y.low.firsts.empty()) {
    x.low.value = smaller(x.low.value, y.low.value);
    return true;
  }
  return false;
}

ExprId PieceAlgebra::joined(Op op, const std::vector<ExprId>& ids) {
  ExprId all = ids.front();
  for (std::size_t i = 1; i < ids.size(); ++i) {
    all = forms_.builder().make(op, {all, ids[i]}, dag_[ids[i]].pos);
  }
  return all;
}

ExprId PieceAlgebra::extreme(Op op, const std::vector<Linear>& sums) {
  std::vector<ExprId> ids;
  for (const Linear& sum : sums) ids.push_back(forms_.expression(sum));
  return joined(op, ids);
}

ExprId PieceAlgebra::larger(ExprId x, ExprId y) {
  const Linear of_x = forms_.value_of(x), of_y = forms_.value_of(y);
  if (is_at_most(of_x, of_y)) return y;
  return is_at_most(of_y, of_x) ? x : joined(Op::max_, {x, y});
}

ExprId PieceAlgebra::smaller(ExprId x, ExprId y) {
  const Linear of_x = forms_.value_of(x), of_y = forms_.value_of(y);
  if (is_at_most(of_x, of_y)) return x;
  return is_at_most(of_y, of_x) ? y : joined(Op::min_, {x, y});
}

}  // namespace attn::passes
