#include <type_traits>

#include "compiler/ast/ast.h"

namespace attn::ast {
namespace {

// Every place of every node; a clause that is missing here does not compile.
class Shift {
 public:
  explicit Shift(std::uint32_t offset) : offset_(offset) {}

  void operator()(Span& span) const {
    span.begin += offset_;
    span.end += offset_;
  }
  void operator()(Name& name) const { (*this)(name.span); }
  void operator()(Expr& expr) const { all(expr.span, expr.head, expr.operands); }
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
  void operator()(LengthsEntry& entry) const { all(entry.side, entry.fallback); }
  void operator()(SpecParameter& parameter) const { all(parameter.name, parameter.value); }

  void operator()(DimsClause& clause) const { (*this)(clause.entries); }
  void operator()(DtypeClause& clause) const { (*this)(clause.dtype); }
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
  void operator()(FunctionClause& clause) const {
    all(clause.name, clause.parameters, clause.lets, clause.value);
  }
  void operator()(ImportClause& clause) const { (*this)(clause.path); }
  void operator()(OtherClause&) const {}

  void operator()(Clause& clause) const {
    all(clause.span, clause.keyword);
    std::visit(*this, clause.body);
  }

 private:
  template <typename... Parts>
  void all(Parts&... parts) const {
    ((*this)(parts), ...);
  }

  std::uint32_t offset_;
};

}  // namespace

void shift(Spec& spec, std::uint32_t offset) {
  const Shift move(offset);
  move(spec.name);
  move(spec.preamble);
  move(spec.parameters);
  move(spec.clauses);
  move(spec.span);
}

}  // namespace attn::ast
