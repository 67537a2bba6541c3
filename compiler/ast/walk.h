// Visits every span and every expression of a syntax tree.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "compiler/ast/ast.h"

namespace attn::ast {

// Calls on_span(Span&) for each span and on_expr(Expr&) for each expression, before its operands. A
// clause type that is missing here is a compile error.
template <typename OnSpan, typename OnExpr>
class Walk {
 public:
  Walk(OnSpan on_span, OnExpr on_expr) : on_span_(on_span), on_expr_(on_expr) {}

  void operator()(Span& span) const { on_span_(span); }
  void operator()(Name& name) const { (*this)(name.span); }
  void operator()(Expr& expr) const {
    on_expr_(expr);
    all(expr.span, expr.head, expr.operands);
  }
  template <typename T>
  void operator()(std::vector<T>& list) const {
    for (T& item : list) (*this)(item);
  }
  template <typename T>
  void operator()(std::optional<T>& value) const {
    if (value) (*this)(*value);
  }

  void operator()(DimEntry& entry) const { all(entry.name, entry.size, entry.set); }
  void operator()(LayoutArgument& argument) const { all(argument.name, argument.value); }
  void operator()(LayoutEntry& entry) const { all(entry.tensor, entry.kind, entry.arguments); }
  void operator()(Fact& fact) const { all(fact.name, fact.arguments); }
  void operator()(LengthsEntry& entry) const { all(entry.side, entry.fallback); }
  void operator()(DtypeEntry& entry) const { all(entry.tensor, entry.dtype); }
  void operator()(QuantizeEntry& entry) const { all(entry.name, entry.dtype, entry.fallback); }
  void operator()(BranchInput& input) const { all(input.tensor, input.by); }
  void operator()(SpecParameter& parameter) const { all(parameter.name, parameter.value); }

  void operator()(DimsClause& clause) const { (*this)(clause.entries); }
  void operator()(DtypeClause& clause) const { all(clause.dtype, clause.entries); }
  void operator()(LayoutClause& clause) const { (*this)(clause.entries); }
  void operator()(TensorClause& clause) const {
    all(clause.name, clause.dtype, clause.extents, clause.facts, clause.fallback);
  }
  void operator()(ParamClause& clause) const { all(clause.name, clause.dtype); }
  void operator()(LetClause& clause) const { all(clause.name, clause.value); }
  void operator()(ScaleClause& clause) const { (*this)(clause.value); }
  void operator()(ScoreClause& clause) const { (*this)(clause.value); }
  void operator()(MaskClause& clause) const { (*this)(clause.value); }
  void operator()(OutputsClause& clause) const { (*this)(clause.outputs); }
  void operator()(AlignClause& clause) const { (*this)(clause.align); }
  void operator()(SinkClause& clause) const { (*this)(clause.value); }
  void operator()(DropoutClause& clause) const { all(clause.probability, clause.keep); }
  void operator()(LengthsClause& clause) const { (*this)(clause.entries); }
  void operator()(GradClause& clause) const { (*this)(clause.tensors); }
  void operator()(DeterministicClause&) const {}
  void operator()(NormalizeClause& clause) const { (*this)(clause.by); }
  void operator()(PrologueClause& clause) const { all(clause.tensor, clause.value); }
  void operator()(WeightClause& clause) const { (*this)(clause.value); }
  void operator()(EpilogueClause& clause) const { (*this)(clause.value); }
  void operator()(BranchClause& clause) const { all(clause.name, clause.inputs); }
  void operator()(ValuesClause& clause) const { all(clause.tensor, clause.first, clause.end); }
  void operator()(GatherClause& clause) const { all(clause.keys, clause.counts); }
  void operator()(ShardClause& clause) const { (*this)(clause.axis); }
  void operator()(QuantizeClause& clause) const { all(clause.by, clause.of, clause.entries); }
  void operator()(FunctionClause& clause) const {
    all(clause.name, clause.parameters, clause.lets, clause.value);
  }
  void operator()(ImportClause& clause) const { (*this)(clause.path); }
  void operator()(OtherClause&) const {}

  void operator()(Clause& clause) const {
    all(clause.span, clause.keyword);
    std::visit(*this, clause.body);
  }
  void operator()(Spec& spec) const {
    all(spec.name, spec.preamble, spec.parameters, spec.clauses, spec.span);
  }

 private:
  template <typename... Parts>
  void all(Parts&... parts) const {
    ((*this)(parts), ...);
  }

  OnSpan on_span_;
  OnExpr on_expr_;
};

}  // namespace attn::ast
