#include "compiler/gradient/tangent.h"

namespace attn::gradient {
namespace {

using ir::ExprId;
using ir::Op;

bool same(const Tangent& x, const Tangent& y) {
  return x.factor == y.factor && x.constant() == y.constant();
}

}  // namespace

std::optional<double> TangentBuilder::constant_of(ExprId id) const {
  if (!dag_[id].is(Op::const_real_)) return std::nullopt;
  return dag_.real_of(id);
}

MaybeTangent TangentBuilder::scaled(const MaybeTangent& x, double by) {
  if (!x || by == 0) return std::nullopt;
  return Tangent{x->numerator * by, x->denominator, x->factor};
}

MaybeTangent TangentBuilder::divided(const MaybeTangent& x, double by) {
  if (!x) return std::nullopt;
  return Tangent{x->numerator, x->denominator * by, x->factor};
}

MaybeTangent TangentBuilder::times(const MaybeTangent& x, ExprId factor) {
  if (!x) return std::nullopt;
  if (const auto constant = constant_of(factor)) return scaled(x, *constant);
  if (dag_[factor].is(Op::neg_)) return times(scaled(x, -1), ExprId{dag_[factor].operands[0]});
  Tangent result = *x;
  result.factor = x->factor ? applied(Op::mul_, *x->factor, factor) : factor;
  return result;
}

MaybeTangent TangentBuilder::over(const MaybeTangent& x, ExprId divisor) {
  if (!x) return std::nullopt;
  if (const auto constant = constant_of(divisor)) return divided(x, *constant);
  Tangent result = *x;
  result.factor = applied(Op::div_, x->factor ? *x->factor : real(1), divisor);
  return result;
}

MaybeTangent TangentBuilder::plus(const MaybeTangent& x, const MaybeTangent& y) {
  if (!x || !y) return x ? x : y;
  if (x->factor == y->factor) {
    const double sum = x->numerator * y->denominator + y->numerator * x->denominator;
    if (sum == 0) return std::nullopt;
    return Tangent{sum, x->denominator * y->denominator, x->factor};
  }
  const bool subtracts = y->constant() < 0;
  const ExprId right = expression(subtracts ? scaled(y, -1) : y);
  return Tangent{1, 1, make(subtracts ? Op::sub_ : Op::add_, {expression(x), right})};
}

MaybeTangent TangentBuilder::where(ExprId condition, const MaybeTangent& x, const MaybeTangent& y) {
  if (!x && !y) return std::nullopt;
  if (x && y && same(*x, *y)) return x;
  const ExprId chosen = make(Op::select_, {condition, expression(x), expression(y)});
  if (const auto constant = constant_of(chosen)) return scaled(Tangent{}, *constant);
  return Tangent{1, 1, chosen};
}

bool TangentBuilder::is_zero(ExprId id) const { return constant_of(id) == 0.0; }

bool TangentBuilder::vanishes(ExprId id) {
  const auto known = vanishes_.find(id);
  if (known != vanishes_.end()) return known->second;
  const ir::Node& node = dag_[id];
  const auto& x = node.operands;
  bool result = false;
  if (node.is(Op::select_)) {
    result = is_zero(x[1]) || is_zero(x[2]) || vanishes(x[1]) || vanishes(x[2]);
  } else if (node.is(Op::add_) || node.is(Op::sub_)) {
    result = vanishes(x[0]) || vanishes(x[1]);
  } else if (node.is(Op::neg_)) {
    result = vanishes(x[0]);
  } else if (node.is(Op::mul_) && constant_of(x[0])) {
    result = vanishes(x[1]);
  }
  return vanishes_.emplace(id, result).first->second;
}

ExprId TangentBuilder::applied(Op op, ExprId x, ExprId y) {
  if (is_zero(x)) return x;
  if (!vanishes(x)) {
    const auto constant = op == Op::mul_ ? constant_of(x) : std::nullopt;
    return constant ? product(*constant, y) : make(op, {x, y});
  }
  const ir::Node node = dag_[x];
  std::vector<ExprId> operands = node.operands;
  const bool keeps_first = node.is(Op::select_) || node.is(Op::mul_);  // a condition, a constant
  for (std::size_t i = keeps_first ? 1 : 0; i < operands.size(); ++i) {
    operands[i] = applied(op, operands[i], y);
  }
  return make(node.op, operands);
}

ExprId TangentBuilder::expression(const MaybeTangent& x) {
  if (!x) return real(0);
  return x->factor ? product(x->constant(), *x->factor) : real(x->constant());
}

ExprId TangentBuilder::product(double constant, ExprId factor) {
  if (constant == 1) return factor;
  if (constant == -1) return make(Op::neg_, {factor});
  const ir::Node node = dag_[factor];
  if (node.is(Op::div_) && constant_of(node.operands[0]) == 1.0) {
    return make(Op::div_, {real(constant), node.operands[1]});
  }
  return make(Op::mul_, {real(constant), factor});
}

}  // namespace attn::gradient
