// The rules of simplify (listed in simplify.h) for one expression at a time.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/ir/value.h"

namespace attn::rewrite {

// x op y is y mirrored(op) x, for a comparison.
ir::Op mirrored(ir::Op op);

// Adds nodes to a DAG in simplified form. Operands must have been made by the same builder.
class SimplifyingBuilder {
 public:
  explicit SimplifyingBuilder(ir::Dag& dag) : dag_(dag) {}

  ir::ExprId make(ir::Op op, const std::vector<ir::ExprId>& operands, ir::SourcePos pos);
  // The negation of a boolean, with `not` moved inwards as far as possible.
  ir::ExprId negate(ir::ExprId id);

 private:
  using Operands = std::vector<ir::ExprId>;
  using Rewritten = std::optional<ir::ExprId>;  // nullopt: no rule applies

  Rewritten folded(ir::Op op, const Operands& operands, ir::SourcePos pos);
  Rewritten rewritten(ir::Op op, const Operands& operands, ir::SourcePos pos);
  Rewritten arithmetic(ir::Op op, ir::ExprId x, ir::ExprId y, ir::SourcePos pos);
  Rewritten commuted_arithmetic(ir::Op op, ir::ExprId x, ir::ExprId y);
  Rewritten unary(ir::Op op, ir::ExprId x, ir::SourcePos pos);
  Rewritten comparison(ir::Op op, ir::ExprId x, ir::ExprId y, ir::SourcePos pos);
  Rewritten comparison_of_integers_made_real(ir::Op op, ir::ExprId x, ir::ExprId y,
                                             ir::SourcePos pos);
  Rewritten comparison_of_boolean(ir::Op op, ir::ExprId x, ir::ExprId y, ir::SourcePos pos);
  Rewritten logic(ir::Op op, ir::ExprId x, ir::ExprId y);
  Rewritten select(const Operands& operands, ir::SourcePos pos);
  Rewritten boolean_select(const Operands& operands, ir::SourcePos pos);
  Rewritten select_of_products(const Operands& operands, ir::SourcePos pos);
  ir::ExprId negated(ir::ExprId id);
  ir::ExprId negated_comparison(ir::ExprId id);

  bool is_integer(ir::ExprId id, std::int64_t value) const;
  bool is_real(ir::ExprId id, double value) const;  // zeros with the same sign
  bool is_boolean(ir::ExprId id, bool value) const;
  bool is_integer_made_real(ir::ExprId id) const;
  bool never_nan(ir::ExprId id);
  bool operands_never_nan(const ir::Node& node);

  ir::Dag& dag_;
  // Cached, because an expression with shared parts has exponentially many paths.
  std::map<ir::ExprId, ir::ExprId> opposites_;
  std::map<ir::ExprId, bool> never_nan_;
};

}  // namespace attn::rewrite
