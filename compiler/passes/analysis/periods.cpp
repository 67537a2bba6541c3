#include "compiler/passes/analysis/periods.h"

#include <map>

namespace attn::passes {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

// The quotient of the first period, and how many periods there are.
struct Reach {
  ExprId remainder = 0;  // x % length
  Linear first;
  std::int64_t count = 0;
};

class Unroller {
 public:
  Unroller(ir::Attention& attention, LinearForms& forms, Directions& directions)
      : dag_(attention.dag), forms_(forms), directions_(directions) {}

  // The remainder with the fewest periods.
  std::optional<Reach> reach(ExprId condition, const Piece& piece) {
    const ExprId roots[] = {condition};
    std::optional<Reach> best;
    for (const ExprId id : ir::reachable(dag_, roots)) {
      if (!is_remainder(id)) continue;
      for (const Linear& low : piece.lows) {
        for (const Linear& high : piece.highs) {
          const auto found = reach(id, low, high - linear_constant(1));
          if (found && (!best || found->count < best->count)) best = found;
        }
      }
    }
    return best && best->count <= kMostPeriods ? best : std::nullopt;
  }

  // nullopt if it could leave 32 bits, or if a tensor is read at it.
  std::optional<Period> period(ExprId condition, const Reach& reach, std::int64_t index) {
    const Node node = dag_[reach.remainder];
    Period period;
    period.length = length_of(node);
    const Linear quotient = reach.first + linear_constant(index);
    period.remainder = forms_.value_of(node.operands[0]) - quotient * period.length;
    if (!forms_.fits(period.remainder)) return std::nullopt;
    const ExprId written = forms_.expression(period.remainder);
    const auto replacement = replaced(condition, reach.remainder, written);
    if (!replacement) return std::nullopt;
    period.condition = *replacement;
    return period;
  }

 private:
  std::int64_t length_of(const Node& node) const { return dag_.integer_of(node.operands[1]); }

  bool is_remainder(ExprId id) {
    const Node node = dag_[id];
    if (!node.is(Op::mod_) || node.type != ir::Type::integer || directions_.is_free(id)) {
      return false;
    }
    return dag_[node.operands[1]].is(Op::const_int_) && length_of(node) > 0;
  }

  std::optional<Reach> reach(ExprId id, const Linear& first, const Linear& last) {
    const Node node = dag_[id];
    const Direction direction = directions_[node.operands[0]];
    if (direction != Direction::rising && direction != Direction::falling) return std::nullopt;
    const bool rises = direction == Direction::rising;
    const auto from = quotient_at(node, rises ? first : last);
    const auto to = quotient_at(node, rises ? last : first);
    if (!from || !to) return std::nullopt;
    const auto further = forms_.range_of(*to - *from);
    if (!further || further->high < 0) return std::nullopt;
    return Reach{id, *from, further->high + 1};
  }

  std::optional<Linear> quotient_at(const Node& node, const Linear& column) {
    const auto x = at(node.operands[0], column);
    return x ? forms_.quotient(*x, length_of(node)) : std::nullopt;
  }

  // The value of an expression at a column given as a sum of the row.
  std::optional<Linear> at(ExprId id, const Linear& column) {
    if (directions_.is_free(id)) return forms_.value_of(id);
    const Node node = dag_[id];
    switch (node.op) {
      case Op::column_: return column;
      case Op::neg_:
      case Op::add_:
      case Op::sub_:
      case Op::mul_: return sum_at(node, column);
      case Op::floordiv_: {
        const auto x = at(node.operands[0], column);
        const Linear divisor = forms_.value_of(node.operands[1]);
        if (!x || !divisor.terms.empty() || divisor.constant <= 0) return std::nullopt;
        return forms_.quotient(*x, divisor.constant);
      }
      default: return std::nullopt;
    }
  }

  std::optional<Linear> sum_at(const Node& node, const Linear& column) {
    const auto x = at(node.operands[0], column);
    if (!x) return std::nullopt;
    if (node.is(Op::neg_)) return *x * -1;
    const auto y = at(node.operands[1], column);
    if (!y) return std::nullopt;
    if (node.is(Op::add_)) return *x + *y;
    if (node.is(Op::sub_)) return *x - *y;
    if (y->terms.empty()) return *x * y->constant;
    return x->terms.empty() ? std::optional(*y * x->constant) : std::nullopt;
  }

  // nullopt if it is in an index of a load.
  std::optional<ExprId> replaced(ExprId root, ExprId from, ExprId to) {
    const ExprId roots[] = {root};
    std::map<ExprId, ExprId> made;
    for (const ExprId id : ir::reachable(dag_, roots)) {
      const Node node = dag_[id];
      std::vector<ExprId> operands;
      for (const ExprId operand : node.operands) operands.push_back(made.at(operand));
      const bool changes = operands != node.operands;
      if (changes && node.is(Op::load_)) return std::nullopt;
      made[id] = id == from ? to
                 : changes  ? forms_.builder().make(node.op, operands, node.pos)
                            : id;
    }
    return made[root];
  }

  ir::Dag& dag_;
  LinearForms& forms_;
  Directions& directions_;
};

}  // namespace

std::optional<std::vector<Period>> periods_of(ir::Attention& attention, LinearForms& forms,
                                              Directions& directions, ExprId condition,
                                              const Piece& piece) {
  Unroller unroller(attention, forms, directions);
  const std::optional<Reach> reach = unroller.reach(condition, piece);
  if (!reach) return std::nullopt;
  std::vector<Period> periods;
  for (std::int64_t index = 0; index < reach->count; ++index) {
    const auto period = unroller.period(condition, *reach, index);
    if (!period) return std::nullopt;
    periods.push_back(*period);
  }
  return periods;
}

}  // namespace attn::passes
