#include "compiler/passes/analysis/intervals.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/passes/analysis/direction.h"
#include "compiler/passes/analysis/floor_div.h"
#include "compiler/passes/analysis/linear.h"
#include "compiler/passes/analysis/periods.h"
#include "compiler/passes/analysis/pieces.h"

namespace attn::passes {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

// Limits the walk: an expression with shared parts has exponentially many paths.
constexpr int kMostSteps = 4096;

constexpr int kMostRemainders = 3;                    // of one condition, split into periods
constexpr std::int64_t kFar = std::int64_t{1} << 40;  // from everything that fits

class IntervalAnalysis {
 public:
  IntervalAnalysis(ir::Attention& attention, const planning::Deadline* deadline)
      : attention_(attention),
        dag_(attention.dag),
        forms_(attention),
        directions_(attention),
        effort_(deadline),
        pieces_(attention, forms_, effort_) {}

  bool was_stopped() const { return effort_.is_spent() || steps_ > kMostSteps; }

  std::vector<Interval> conjunction(const std::vector<ExprId>& conditions) {
    return pieces_.written(conjoined(conditions));
  }

 private:
  // Columns where the boolean is `wanted`.
  Pieces of(ExprId id, bool wanted) {
    if (++steps_ > kMostSteps) return unknown();
    const Node node = dag_[id];
    if (directions_.is_free(id)) return where(wanted ? id : builder().negate(id));
    switch (node.op) {
      case Op::not_: return of(node.operands[0], !wanted);
      case Op::and_:
      case Op::or_: return logic(node, wanted);
      case Op::select_: return select(node, [&](ExprId branch) { return of(branch, wanted); });
      default: break;
    }
    const bool compares = ir::info(node.op).rule == ir::Rule::comparison;
    const ir::Type type = compares ? dag_[node.operands[0]].type : node.type;
    if (compares && type == ir::Type::integer) return comparison(node, wanted);
    const ExprId condition = wanted ? id : builder().negate(id);
    return compares && type == ir::Type::wide ? wide_comparison(condition) : search(condition);
  }

  // Linear forms do not have 64 bits.
  Pieces wide_comparison(ExprId id) {
    const Node node = dag_[id];
    const auto part = [&](Op op) { return search(builder().make(op, node.operands, node.pos)); };
    if (node.is(Op::eq_)) return intersect(part(Op::ge_), part(Op::le_));
    return node.is(Op::ne_) ? unite(part(Op::gt_), part(Op::lt_)) : search(id);
  }

  Pieces where(ExprId condition) {
    const Range range = forms_.range_of(condition);
    if (range.is_false()) return {};
    Pieces pieces = all();
    if (!range.is_true()) pieces[0].conditions.push_back(condition);
    return pieces;
  }

  Pieces logic(const Node& node, bool wanted) {
    if (node.is(Op::and_) && wanted) return conjoined(conjuncts(node));
    const Pieces x = of(node.operands[0], wanted), y = of(node.operands[1], wanted);
    return node.is(Op::and_) == wanted ? intersect(x, y) : unite(x, y);
  }

  std::vector<ExprId> conjuncts(const Node& node) const {
    std::vector<ExprId> all;
    for (const ExprId id : node.operands) {
      if (!dag_[id].is(Op::and_)) {
        all.push_back(id);
        continue;
      }
      const std::vector<ExprId> inner = conjuncts(dag_[id]);
      all.insert(all.end(), inner.begin(), inner.end());
    }
    return all;
  }

  // Conditions that are known exactly bound the periods of the others.
  Pieces conjoined(const std::vector<ExprId>& conditions) {
    Pieces pieces = all();
    std::vector<ExprId> others;
    for (const ExprId id : conditions) {
      const Pieces own = of(id, true);
      if (is_exact(own)) {
        pieces = intersect(pieces, own);
      } else {
        others.push_back(id);
      }
    }
    Pieces rest = all();
    for (const ExprId id : others) {
      if (auto known = by_periods(pieces, id, kMostRemainders)) {
        pieces = std::move(*known);
      } else {
        rest = intersect(rest, of(id, true));
      }
    }
    return intersect(pieces, rest);
  }

  static bool is_exact(const Pieces& pieces) { return std::ranges::all_of(pieces, &Piece::exact); }

  // The part of the pieces where the condition holds, as exact as they are; nullopt if unknown.
  std::optional<Pieces> by_periods(const Pieces& pieces, ExprId condition, int remainders) {
    Pieces all;
    for (const Piece& piece : pieces) {
      const auto part = by_periods(piece, condition, remainders);
      if (!part || all.size() + part->size() > kMostIntervals) return std::nullopt;
      all = unite(all, *part);
    }
    return all;
  }

  std::optional<Pieces> by_periods(const Piece& piece, ExprId condition, int remainders) {
    const auto size = static_cast<std::int64_t>(dag_.size());  // each period is rebuilt
    if (++steps_ > kMostSteps || !effort_.spend(size)) return std::nullopt;
    const Pieces own = of(condition, true);
    if (is_exact(own)) return intersect({piece}, own);
    const auto periods = remainders > 0
                             ? periods_of(attention_, forms_, directions_, condition, piece)
                             : std::nullopt;
    if (!periods) return std::nullopt;
    Pieces all;
    for (const Period& period : *periods) {
      const auto part = by_periods(within(piece, period), period.condition, remainders - 1);
      if (!part || all.size() + part->size() > kMostIntervals) return std::nullopt;
      all = unite(all, *part);
    }
    return all;
  }

  Pieces within(const Piece& piece, const Period& period) {
    const Linear beyond = period.remainder - linear_constant(period.length);
    return intersect({piece},
                     intersect(not_negative(period.remainder, true), not_negative(beyond, false)));
  }

  template <typename Visible>
  Pieces select(const Node& node, const Visible& visible) {
    const ExprId condition = node.operands[0];
    return unite(intersect(of(condition, true), visible(node.operands[1])),
                 intersect(of(condition, false), visible(node.operands[2])));
  }

  Pieces comparison(const Node& node, bool wanted) {
    const Linear difference = forms_.value_of(node.operands[0]) - forms_.value_of(node.operands[1]);
    const Linear opposite = difference * -1;
    switch (node.op) {
      case Op::ge_: return not_negative(difference, wanted);
      case Op::lt_: return not_negative(difference, !wanted);
      case Op::le_: return not_negative(opposite, wanted);
      case Op::gt_: return not_negative(opposite, !wanted);
      default: break;
    }
    if (node.is(Op::eq_) == wanted) {
      return intersect(not_negative(difference, true), not_negative(opposite, true));
    }
    return unite(not_negative(difference, false), not_negative(opposite, false));
  }

  // Columns where (sum >= 0) is `wanted`.
  Pieces not_negative(const Linear& sum, bool wanted) {
    if (++steps_ > kMostSteps) return unknown();
    const std::optional<Range> range = forms_.range_of(sum);
    if (range && range->low >= 0) return wanted ? all() : Pieces();
    if (range && range->high < 0) return wanted ? Pieces() : all();
    Linear moving, rest = linear_constant(sum.constant);
    for (const auto& entry : sum.terms) {
      (directions_.is_free(entry.first) ? rest : moving).terms.insert(entry);
    }
    if (moving.terms.empty()) return decided(rest, wanted);
    if (moving.terms.size() != 1) return compared(moving, rest * -1, wanted);
    const auto [id, factor] = *moving.terms.begin();
    if (std::abs(factor) == 1 && !is_solvable(dag_[id].op) && forms_.fits(rest * -factor)) {
      return search(compare(id, factor, rest, wanted));
    }
    return factor > 0 ? bounded(id, factor, rest * -1 + linear_constant(factor - 1), wanted)
                      : bounded(id, -factor, rest + linear_constant(-factor), !wanted);
  }

  // The same for a sum that does not depend on the column.
  Pieces decided(const Linear& sum, bool wanted) {
    for (const auto& [id, factor] : sum.terms) {
      const Linear rest = sum - linear_term(id, factor);
      if (std::abs(factor) != 1 || !forms_.fits(rest * -factor)) continue;
      return where(compare(id, factor, rest, wanted));
    }
    return forms_.fits(sum) ? where(compare(forms_.expression(sum), dag_.integer(0), true, wanted))
                            : unknown();
  }

  // Whether solved() handles the operation without a search.
  static bool is_solvable(Op op) {
    return op == Op::column_ || op == Op::min_ || op == Op::max_ || op == Op::abs_ ||
           op == Op::select_ || op == Op::to_int_ || op == Op::floordiv_;
  }

  // sign * id + rest >= 0, or its negation.
  ExprId compare(ExprId id, std::int64_t sign, const Linear& rest, bool wanted) {
    return compare(id, forms_.expression(rest * -sign), sign > 0, wanted);
  }

  // x >= y, or x <= y, or their negations.
  ExprId compare(ExprId x, ExprId y, bool at_least, bool wanted) {
    const Op op = at_least ? (wanted ? Op::ge_ : Op::lt_) : (wanted ? Op::le_ : Op::gt_);
    const Node node = dag_[x];
    if (!node.is(Op::select_) || !dag_.is_constant(y)) return builder().make(op, {x, y}, node.pos);
    return builder().make(Op::select_,
                          {node.operands[0], compare(node.operands[1], y, at_least, wanted),
                           compare(node.operands[2], y, at_least, wanted)},
                          node.pos);
  }

  // Columns where (moving >= value) is `wanted`, for several moving terms.
  Pieces compared(const Linear& moving, const Linear& value, bool wanted) {
    const std::int64_t sign = moving.terms.begin()->second < 0 ? -1 : 1;
    const Linear x = moving * sign, y = value * sign;
    if (!forms_.fits(x) || !forms_.fits(y)) return relaxed(moving, value, wanted);
    const ExprId condition = compare(forms_.expression(x), forms_.expression(y), sign > 0, wanted);
    return changes_once(condition) ? search(condition) : relaxed(moving, value, wanted);
  }

  // Bounds the terms of `moving` one by one, whatever the others are.
  Pieces relaxed(const Linear& moving, const Linear& value, bool wanted) {
    Pieces pieces = unknown();
    for (const auto& [id, factor] : moving.terms) {
      const std::optional<Range> others = forms_.range_of(moving - linear_term(id, factor));
      if (!others) continue;
      const Linear best = linear_constant(wanted ? others->high : others->low);
      pieces = intersect(pieces, not_negative(linear_term(id, factor) + best - value, wanted));
    }
    return pieces;
  }

  bool changes_once(ExprId condition) { return directions_[condition] != Direction::unknown; }

  // Columns where a condition holds that changes at most once.
  Pieces search(ExprId condition) {
    Pieces pieces = all();
    switch (directions_[condition]) {
      case Direction::constant: return where(condition);
      case Direction::rising: pieces[0].low_firsts.push_back(condition); return pieces;
      case Direction::falling:
        pieces[0].high_firsts.push_back(builder().negate(condition));
        return pieces;
      default: return unknown();
    }
  }

  // Columns where (id >= floor(value / divisor)) is `wanted`.
  Pieces bounded(ExprId id, std::int64_t divisor, const Linear& value, bool wanted) {
    const Range range = *forms_.range_of(linear_term(id));
    const auto bound = quotient(value, divisor, {range.low * divisor, (range.high + 1) * divisor});
    if (!bound || !forms_.fits(*bound)) return unknown();
    const Range of_bound = *forms_.range_of(*bound);
    if (of_bound.high <= range.low) return wanted ? all() : Pieces();
    if (of_bound.low > range.high) return wanted ? Pieces() : all();
    return solved(id, forms_.rejoined(*bound), wanted);
  }

  // The quotient of the sum, or of one on the same side of the limits.
  std::optional<Linear> quotient(const Linear& sum, std::int64_t divisor, const Range& limits) {
    if (forms_.fits(sum)) {
      if (auto exact = forms_.quotient(sum, divisor)) return exact;
    }
    const Range range = forms_.range_of(sum).value_or(Range{-kFar, kFar});
    for (const Range& wide : {range, Range{-kFar, kFar}}) {
      const auto close = within(sum, wide, limits);
      auto found = close ? forms_.quotient(*close, divisor) : std::nullopt;
      if (found) return found;
    }
    return std::nullopt;
  }

  // A sum that fits 32 bits and equals `sum` or is on the same side of the limits; `range` is that
  // of `sum`. nullopt if more than one term is too wide.
  std::optional<Linear> within(const Linear& sum, const Range& range, const Range& limits) {
    const bool is_low = range.low < INT32_MIN;
    const bool is_high = range.high > INT32_MAX;
    for (const auto& [id, factor] : sum.terms) {
      const Linear rest = sum - linear_term(id, factor);
      const auto others = forms_.range_of(rest);
      if (!others) continue;
      const Range least{is_low ? limits.low - others->high : -kFar,
                        is_high ? limits.high - others->low : kFar};
      const Range own =
          factor > 0 ? Range{floor_div(least.low, factor), -floor_div(-least.high, factor)}
                     : Range{floor_div(-least.high, -factor), -floor_div(least.low, -factor)};
      const Linear closer = rest + clamped(id, own) * factor;
      if (forms_.fits(closer)) return closer;
    }
    return std::nullopt;
  }

  Linear clamped(ExprId id, const Range& range) {
    const Range own = forms_.range_of(id);
    const auto limit = [&](Op op, std::int64_t value) {
      return value < INT32_MIN || value > INT32_MAX
                 ? id
                 : builder().make(op, {id, dag_.integer(value)}, dag_[id].pos);
    };
    if (own.low < range.low) id = limit(Op::max_, range.low);
    if (own.high > range.high) id = limit(Op::min_, range.high);
    return forms_.of(id);
  }

  // Columns where (id >= bound) is `wanted`.
  Pieces solved(ExprId id, const Linear& bound, bool wanted) {
    const Node node = dag_[id];
    const auto side = [&](const Linear& x) { return not_negative(x - bound, wanted); };
    const auto operand = [&](std::size_t i) { return forms_.value_of(node.operands[i]); };
    switch (node.op) {
      case Op::column_: return wanted ? pieces_.from(bound) : pieces_.below(bound);
      case Op::min_:
      case Op::max_: {
        const Pieces x = side(operand(0)), y = side(operand(1));
        return node.is(Op::min_) == wanted ? intersect(x, y) : unite(x, y);
      }
      case Op::abs_: {
        if (forms_.range_of(id) == Range{}) return unknown();  // abs of the lowest integer wraps
        const Pieces x = side(operand(0)), y = side(operand(0) * -1);
        return wanted ? unite(x, y) : intersect(x, y);
      }
      case Op::select_:
        return select(node, [&](ExprId branch) { return side(forms_.value_of(branch)); });
      case Op::to_int_: return of_integer(node.operands[0], bound, wanted);
      case Op::floordiv_: return of_quotient(id, bound, wanted);
      default: return search(compare(id, forms_.expression(bound), true, wanted));
    }
  }

  // Columns where (boolean >= bound) is `wanted`, the boolean being 0 or 1.
  Pieces of_integer(ExprId boolean, const Linear& bound, bool wanted) {
    const auto value_is_at_least = [&](std::int64_t value) {
      return not_negative(linear_constant(value) - bound, wanted);
    };
    return unite(intersect(of(boolean, true), value_is_at_least(1)),
                 intersect(of(boolean, false), value_is_at_least(0)));
  }

  // x // y >= bound is x >= bound * y for a positive y.
  Pieces of_quotient(ExprId id, const Linear& bound, bool wanted) {
    const Node node = dag_[id];
    const ExprId divisor = node.operands[1];
    if (directions_.is_free(divisor) && forms_.range_of(divisor).low > 0) {
      if (const auto product = multiplied(bound, forms_.value_of(divisor))) {
        return not_negative(forms_.value_of(node.operands[0]) - *product, wanted);
      }
    }
    return search(compare(id, forms_.expression(bound), true, wanted));
  }

  std::optional<Linear> multiplied(const Linear& x, const Linear& y) {
    if (y.terms.empty()) return x * y.constant;
    if (x.terms.empty()) return y * x.constant;
    const ExprId product =
        builder().make(Op::mul_, {forms_.expression(x), forms_.expression(y)}, {});
    if (forms_.range_of(product) == Range{}) return std::nullopt;  // it may wrap
    return linear_term(product);
  }

  Pieces all() const { return pieces_.all(); }
  Pieces unknown() const { return pieces_.anything(); }
  Pieces intersect(const Pieces& x, const Pieces& y) { return pieces_.intersect(x, y); }
  Pieces unite(const Pieces& x, const Pieces& y) { return pieces_.unite(x, y); }
  SimplifyingBuilder& builder() { return forms_.builder(); }

  ir::Attention& attention_;
  ir::Dag& dag_;
  LinearForms forms_;
  Directions directions_;
  Effort effort_;
  PieceAlgebra pieces_;
  int steps_ = 0;
};

std::string edge_text(const VisibleColumns& columns, const Edge& edge, Op op) {
  const ir::Dag& dag = columns.attention.dag;
  const auto dims = columns.attention.dims.get(ir::Dim::Skv);
  const ir::Node& value = dag[edge.value];
  const bool is_end = op == Op::max_ ? value.is(Op::const_int_) && dag.integer_of(edge.value) == 0
                      : dims ? value.is(Op::const_int_) && dag.integer_of(edge.value) == *dims
                             : value.is(Op::dim_);
  std::string text;
  if (!is_end || edge.firsts.empty()) text = ir::to_source(columns.attention, edge.value);
  for (const ExprId id : edge.firsts) {
    const std::string first = fmt::format("first({})", ir::to_source(columns.attention, id));
    text = text.empty() ? first : fmt::format("{}({}, {})", ir::info(op).name, text, first);
  }
  return text;
}

}  // namespace

VisibleColumns visible_columns(const ir::Attention& attention, const planning::Deadline* deadline) {
  VisibleColumns columns{attention, {}};
  IntervalAnalysis analysis(columns.attention, deadline);
  columns.intervals = analysis.conjunction(attention.masks);
  columns.stopped = analysis.was_stopped();
  if (!std::ranges::all_of(columns.intervals, &Interval::exact)) {
    columns.exactness = Exactness::bound;
  }
  return columns;
}

std::string to_source(const VisibleColumns& columns, const Interval& interval) {
  std::string text = fmt::format("[{}, {})", edge_text(columns, interval.low, Op::max_),
                                 edge_text(columns, interval.high, Op::min_));
  if (interval.condition) {
    text += " where " + ir::to_source(columns.attention, *interval.condition);
  }
  return text;
}

}  // namespace attn::passes
