// Numeric reverse mode over one expression: the cotangent of the root is propagated to the leaves
// by the rule of each operation. Independent of the symbolic derivatives (compiler/gradient), so
// that each can check the other.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "compiler/reference/row_evaluator.h"

namespace attn::reference {

// The conventions where an operation has no derivative are those of compiler/gradient. A branch
// that a select or an extremum does not take receives nothing: not even 0 * inf.
class ReverseMode {
 public:
  // The evaluator must outlive this; `root` must be real and below one of its roots.
  ReverseMode(const ir::Dag& dag, const RowEvaluator& evaluator, ir::ExprId root);

  // Propagates `cotangent` of the root's value at this column of the evaluator's last run. That
  // value must exist.
  void run(std::size_t column, double cotangent);

  // The cotangent in the last run; 0 for a node that the root does not depend on.
  double cotangent(ir::ExprId id) const;
  // The loads of reals below the root.
  const std::vector<ir::ExprId>& loads() const { return loads_; }
  // Whether the load was reached in the last run: only then is its index known to exist.
  bool is_reached(ir::ExprId id) const { return reached_[id]; }

 private:
  void spread(ir::ExprId id);
  void spread_extremum(const ir::Node& node, double cotangent);
  void spread_function(const ir::Node& node, double f, double cotangent);
  void spread_power(const ir::Node& node, double y, double cotangent);
  void add(ir::ExprId operand, double cotangent);
  double value(ir::ExprId id) const { return evaluator_.cells(id)[column_].value; }

  const ir::Dag& dag_;
  const RowEvaluator& evaluator_;
  const ir::ExprId root_;
  std::vector<ir::ExprId> ids_;  // real nodes, users before operands
  std::vector<ir::ExprId> loads_;
  std::size_t column_ = 0;
  std::vector<double> cotangents_;  // by node
  std::vector<bool> reached_;
};

}  // namespace attn::reference
