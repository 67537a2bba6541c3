#include "compiler/reference/reverse.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "runtime/base/check.h"

namespace attn::reference {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

double sign_of(double x) { return x < 0 ? -1 : 1; }

// The derivatives of f(x, y) by x and by y.
std::array<double, 2> slopes_of(Op op, double x, [[maybe_unused]] double y, double f) {
  const auto slopes = [](double by_x, double by_y = 0) { return std::array{by_x, by_y}; };
  switch (op) {
#define ATTN_REAL_FUNCTION(name, id, operands, doc, value, derivative, slopes, ...) \
  case Op::name##_:                                                                 \
    return slopes;
#include "compiler/ir/real_functions.def"
#undef ATTN_REAL_FUNCTION
    default: check_failed(__FILE__, __LINE__, "slopes", ir::info(op).name);
  }
}

bool is_flat(Op op) {
  return op == Op::floor_ || op == Op::ceil_ || op == Op::floordiv_ || op == Op::to_real_;
}

}  // namespace

ReverseMode::ReverseMode(const ir::Dag& dag, const RowEvaluator& evaluator, ExprId root)
    : dag_(dag),
      evaluator_(evaluator),
      root_(root),
      cotangents_(root + std::size_t{1}),
      reached_(root + std::size_t{1}) {
  const ExprId roots[] = {root};
  for (const ExprId id : ir::reachable(dag, roots)) {
    if (dag[id].type != ir::Type::real) continue;
    ids_.push_back(id);
    if (dag[id].is(Op::load_)) loads_.push_back(id);
  }
  std::ranges::reverse(ids_);
}

void ReverseMode::run(std::size_t column, double cotangent) {
  column_ = column;
  for (const ExprId id : ids_) {
    cotangents_[id] = 0;
    reached_[id] = false;
  }
  add(root_, cotangent);
  for (const ExprId id : ids_) {
    if (reached_[id] && !dag_[id].operands.empty()) spread(id);
  }
}

double ReverseMode::cotangent(ExprId id) const {
  return id < cotangents_.size() ? cotangents_[id] : 0;
}

void ReverseMode::add(ExprId operand, double cotangent) {
  if (dag_[operand].type != ir::Type::real) return;
  cotangents_[operand] += cotangent;
  reached_[operand] = true;
}

void ReverseMode::spread(ExprId id) {
  const Node& node = dag_[id];
  const double c = cotangents_[id], y = value(id);
  const ExprId first = node.operands.front(), last = node.operands.back();
  if (node.is(Op::load_) || is_flat(node.op)) return;
  if (node.is(Op::abs_) && value(first) == 0) return;  // flat there, whatever c is
  switch (node.op) {
    case Op::add_: add(first, c); return add(last, c);
    case Op::sub_: add(first, c); return add(last, -c);
    case Op::mul_: add(first, c * value(last)); return add(last, c * value(first));
    case Op::div_: add(first, c / value(last)); return add(last, -c * (y / value(last)));
    case Op::mod_: add(first, c); return add(last, -c * std::floor(value(first) / value(last)));
    case Op::select_: return add(node.operands[value(first) != 0 ? 1 : 2], c);
    case Op::min_:
    case Op::max_: return spread_extremum(node, c);
    case Op::neg_: return add(first, -c);
    case Op::abs_: return add(first, c * sign_of(value(first)));
    case Op::pow_: return spread_power(node, y, c);
    default: return spread_function(node, y, c);
  }
}

void ReverseMode::spread_function(const Node& node, double f, double cotangent) {
  const ExprId x = node.operands.front(), y = node.operands.back();
  const auto [by_x, by_y] = slopes_of(node.op, value(x), value(y), f);
  add(x, cotangent * by_x);
  if (node.operands.size() == 2) add(y, cotangent * by_y);
}

// Equal operands share the cotangent.
void ReverseMode::spread_extremum(const Node& node, double cotangent) {
  const ExprId x = node.operands[0], y = node.operands[1];
  if (value(x) == value(y)) {
    add(x, cotangent / 2);
    return add(y, cotangent / 2);
  }
  const bool first_is_larger = value(x) > value(y);
  add(first_is_larger == node.is(Op::max_) ? x : y, cotangent);
}

// x ** n is flat in x where n is 0, and in n where x is 0 and n >= 0.
void ReverseMode::spread_power(const Node& node, double y, double cotangent) {
  const double x = value(node.operands[0]), n = value(node.operands[1]);
  if (n != 0) add(node.operands[0], cotangent * n * std::pow(x, n - 1));
  if (x != 0 || n < 0) add(node.operands[1], cotangent * y * std::log(x));
}

}  // namespace attn::reference
