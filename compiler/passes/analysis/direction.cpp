#include "compiler/passes/analysis/direction.h"

#include <algorithm>

#include "compiler/passes/analysis/range.h"

namespace attn::passes {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

Direction opposite(Direction x) {
  switch (x) {
    case Direction::rising: return Direction::falling;
    case Direction::falling: return Direction::rising;
    default: return x;
  }
}

// The direction of a value that rises with both.
Direction both(Direction x, Direction y) {
  if (x == Direction::constant || x == y) return y;
  return y == Direction::constant ? x : Direction::unknown;
}

// The direction of a value that rises with x and falls with y.
Direction between(Direction x, Direction y) { return both(x, opposite(y)); }

}  // namespace

Direction Directions::operator[](ExprId id) {
  if (is_free(id)) return Direction::constant;
  if (const auto known = known_.find(id); known != known_.end()) return known->second;
  return known_.emplace(id, of(id)).first->second;
}

Direction Directions::of(ExprId id) {
  const Node& node = attention_.dag[id];
  const auto operand = [&](std::size_t i) { return (*this)[node.operands[i]]; };
  const bool reals =
      !node.operands.empty() && attention_.dag[node.operands[0]].type == ir::Type::real;
  if (reals || node.type == ir::Type::real) return Direction::unknown;
  switch (node.op) {
    case Op::column_: return Direction::rising;
    case Op::to_int_:
    case Op::widen_:
    case Op::narrow_: return operand(0);
    case Op::not_: return opposite(operand(0));
    case Op::min_:
    case Op::max_:
    case Op::and_:
    case Op::or_: return both(operand(0), operand(1));
    case Op::gt_:
    case Op::ge_: return between(operand(0), operand(1));
    case Op::lt_:
    case Op::le_: return between(operand(1), operand(0));
    case Op::add_:
    case Op::sub_:
    case Op::neg_: return of_sum(id);
    case Op::mul_: return of_product(id);
    case Op::floordiv_: return of_division(node);
    case Op::abs_: return of_magnitude(node);
    case Op::select_: return of_choice(node);
    case Op::load_: return of_load(id);
    default: return Direction::unknown;
  }
}

// An expression that may wrap has the full range (range.h).
bool Directions::may_wrap(ExprId id) { return may_be_wrapped(ranges_[id]); }

Direction Directions::of_sum(ExprId id) {
  const Node& node = attention_.dag[id];
  if (may_wrap(id)) return Direction::unknown;
  const Direction x = (*this)[node.operands[0]];
  if (node.is(Op::neg_)) return opposite(x);
  const Direction y = (*this)[node.operands[1]];
  return node.is(Op::add_) ? both(x, y) : between(x, y);
}

Direction Directions::of_product(ExprId id) {
  ExprId x = attention_.dag[id].operands[0], y = attention_.dag[id].operands[1];
  if (is_free(x)) std::swap(x, y);
  if (!is_free(y) || may_wrap(id)) return Direction::unknown;
  const Range factor = ranges_[y];
  if (factor.low >= 0) return (*this)[x];
  return factor.high <= 0 ? opposite((*this)[x]) : Direction::unknown;
}

Direction Directions::of_division(const Node& node) {
  const bool by_positive = ranges_[node.operands[1]].low > 0;
  return by_positive && is_free(node.operands[1]) ? (*this)[node.operands[0]] : Direction::unknown;
}

Direction Directions::of_magnitude(const Node& node) {
  const Range range = ranges_[node.operands[0]];
  if (range.low >= 0) return (*this)[node.operands[0]];
  const bool negative = range.high <= 0 && range.low > INT32_MIN;
  return negative ? opposite((*this)[node.operands[0]]) : Direction::unknown;
}

Direction Directions::of_choice(const Node& node) {
  if (!is_free(node.operands[0])) return Direction::unknown;
  return both((*this)[node.operands[1]], (*this)[node.operands[2]]);
}

Direction Directions::of_load(ExprId id) {
  const Node& node = attention_.dag[id];
  const ir::CapturedTensor* tensor = attention_.find_tensor(attention_.dag.symbol_of(id));
  if (!tensor->monotone || tensor->extents.empty()) return Direction::unknown;
  const auto last = node.operands.end() - 1;
  const bool along = std::all_of(node.operands.begin(), last, [&](ExprId x) { return is_free(x); });
  return along ? (*this)[*last] : Direction::unknown;
}

}  // namespace attn::passes
