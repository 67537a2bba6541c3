#include "compiler/reference/reverse.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/base/check.h"

namespace attn::reference {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

double sign_of(double x) { return x < 0 ? -1 : 1; }

// f'(x) with y = f(x).
double slope(Op op, double x, double y) {
  switch (op) {
    case Op::neg_: return -1;
    case Op::abs_: return sign_of(x);
    case Op::exp_: return y;
    case Op::exp2_: return y * std::numbers::ln2;
    case Op::log_: return 1 / x;
    case Op::log2_: return std::numbers::log2e / x;
    case Op::sqrt_: return 0.5 / y;
    case Op::rsqrt_: return -0.5 * y / x;
    case Op::tanh_: return 1 / (std::cosh(x) * std::cosh(x));
    case Op::sigmoid_: return y / (1 + std::exp(x));
    case Op::erf_: return 2 * std::numbers::inv_sqrtpi * std::exp(-x * x);
    case Op::sin_: return std::cos(x);
    case Op::cos_: return -std::sin(x);
    case Op::tan_: return 1 / (std::cos(x) * std::cos(x));
    default: check_failed(__FILE__, __LINE__, "slope", ir::info(op).name);
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
    case Op::pow_: return spread_power(node, y, c);
    default: return add(first, c * slope(node.op, value(first), y));
  }
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
