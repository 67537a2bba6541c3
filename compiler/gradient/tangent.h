// The derivative of one node by the current input: a constant times an expression. The constant is
// kept apart, as a fraction, so that 50 * (x / 50) has the derivative 1 and not 0.02 * 50.0.
// Internal to compiler/gradient.
#pragma once

#include <map>
#include <optional>

#include "compiler/rewrite/simplify_rules.h"

namespace attn::gradient {

struct Tangent {
  double numerator = 1;  // of the constant; not 0
  double denominator = 1;
  std::optional<ir::ExprId> factor{};  // absent: 1

  double constant() const { return numerator / denominator; }
};

// nullopt is the derivative 0.
using MaybeTangent = std::optional<Tangent>;

// Adds the nodes of tangents to the DAG, in simplified form, at the current source position.
class TangentBuilder {
 public:
  explicit TangentBuilder(ir::Dag& dag) : dag_(dag), builder_(dag) {}

  void set_pos(ir::SourcePos pos) { pos_ = pos; }
  ir::ExprId make(ir::Op op, const std::vector<ir::ExprId>& operands) {
    return builder_.make(op, operands, pos_);
  }
  ir::ExprId real(double value) { return dag_.real(value, pos_); }

  MaybeTangent scaled(const MaybeTangent& x, double by);
  MaybeTangent divided(const MaybeTangent& x, double by);
  MaybeTangent times(const MaybeTangent& x, ir::ExprId factor);
  MaybeTangent over(const MaybeTangent& x, ir::ExprId divisor);
  MaybeTangent plus(const MaybeTangent& x, const MaybeTangent& y);
  MaybeTangent where(ir::ExprId condition, const MaybeTangent& x, const MaybeTangent& y);

  ir::ExprId expression(const MaybeTangent& x);

 private:
  std::optional<double> constant_of(ir::ExprId id) const;
  bool is_zero(ir::ExprId id) const;
  // Whether it is 0 where a select did not take a branch.
  bool vanishes(ir::ExprId id);
  // x * y or x / y, but 0 where x vanishes, whatever y is: applied within its branches, because a
  // product with inf would be NaN.
  ir::ExprId applied(ir::Op op, ir::ExprId x, ir::ExprId y);
  ir::ExprId product(double constant, ir::ExprId factor);

  ir::Dag& dag_;
  rewrite::SimplifyingBuilder builder_;
  ir::SourcePos pos_{};
  std::map<ir::ExprId, bool> vanishes_;  // cached: shared parts have exponentially many paths
};

}  // namespace attn::gradient
