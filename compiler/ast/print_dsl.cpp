#include <fmt/format.h>

#include "compiler/ast/print.h"

namespace attn::ast {
namespace {

constexpr int kLeafPrecedence = 100;

int precedence_of(const Expr& expr) {
  return expr.operators.empty() ? kLeafPrecedence : precedence(expr.operators[0]);
}

std::string join(const std::vector<Expr>& exprs) {
  std::string out;
  for (const Expr& expr : exprs) out += (out.empty() ? "" : ", ") + to_dsl(expr);
  return out;
}

// In parentheses when it binds less than `least`.
std::string operand(const Expr& expr, int least) {
  const std::string text = to_dsl(expr);
  return precedence_of(expr) < least ? "(" + text + ")" : text;
}

std::string binary(const Expr& expr) {
  const Operator op = expr.operators[0];
  const int own = precedence(op);
  const bool from_right = op == Operator::pow;
  // The exponent may have a sign of its own: 2 ** -x.
  const int right = from_right ? precedence(Operator::negate) : own + 1;
  return fmt::format("{} {} {}", operand(expr.operands[0], from_right ? own + 1 : own),
                     spelling(op), operand(expr.operands[1], right));
}

std::string comparison(const Expr& expr) {
  const int inside = precedence(expr.operators[0]) + 1;
  std::string out = operand(expr.operands[0], inside);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    out +=
        fmt::format(" {} {}", spelling(expr.operators[i]), operand(expr.operands[i + 1], inside));
  }
  return out;
}

std::string join(const std::vector<Name>& names) {
  std::string out;
  for (const Name& name : names) out += (out.empty() ? "" : ", ") + name.text;
  return out;
}

struct BodyPrinter {
  std::string operator()(const DimsClause& clause) const {
    std::string out;
    for (const DimEntry& entry : clause.entries) {
      out += (out.empty() ? "" : ", ") + entry.name.text;
      if (entry.size) out += " = " + to_dsl(*entry.size);
    }
    return out;
  }
  std::string operator()(const DtypeClause& clause) const { return clause.dtype.text; }
  std::string operator()(const LayoutClause& clause) const {
    std::string out;
    for (const LayoutEntry& entry : clause.entries) {
      if (!out.empty()) out += ", ";
      if (entry.tensor) out += entry.tensor->text + ": ";
      out += entry.kind.text;
      if (!entry.strides.empty()) out += "(" + join(entry.strides) + ")";
    }
    return out;
  }
  std::string operator()(const TensorClause& clause) const {
    return fmt::format("{}: {}[{}]", clause.name.text, clause.dtype.text, join(clause.extents));
  }
  std::string operator()(const ParamClause& clause) const {
    return fmt::format("{}: {}", clause.name.text, clause.dtype.text);
  }
  std::string operator()(const LetClause& clause) const {
    return fmt::format("{} = {}", clause.name.text, to_dsl(clause.value));
  }
  std::string operator()(const ScaleClause& clause) const { return to_dsl(clause.value); }
  std::string operator()(const ScoreClause& clause) const { return to_dsl(clause.value); }
  std::string operator()(const MaskClause& clause) const { return to_dsl(clause.value); }
  std::string operator()(const OutputsClause& clause) const { return join(clause.outputs); }
  std::string operator()(const AlignClause& clause) const { return clause.align.text; }
  std::string operator()(const OtherClause& clause) const {
    return fmt::format("{}", fmt::join(clause.words, " "));
  }
};

std::string clause_line(const Clause& clause) {
  const std::string body = std::visit(BodyPrinter(), clause.body);
  return body.empty() ? clause.keyword.text + ";"
                      : fmt::format("{:<7} {};", clause.keyword.text, body);
}

}  // namespace

std::string to_dsl(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::number:
    case ExprKind::boolean:
    case ExprKind::name: return expr.text;
    case ExprKind::unary: {
      const Operator op = expr.operators[0];
      return std::string(spelling(op)) + operand(expr.operands[0], precedence(op));
    }
    case ExprKind::binary: return binary(expr);
    case ExprKind::compare: return comparison(expr);
    case ExprKind::call: return fmt::format("{}({})", expr.text, join(expr.operands));
    case ExprKind::index: return fmt::format("{}[{}]", expr.text, join(expr.operands));
  }
  return {};
}

std::string to_dsl(const Spec& spec) {
  std::string out;
  for (const Clause& item : spec.preamble) out += clause_line(item) + "\n";
  out += "attention " + spec.name.text;
  if (!spec.parameters.empty()) {
    out += "(";
    for (const SpecParameter& parameter : spec.parameters) {
      if (&parameter != &spec.parameters.front()) out += ", ";
      out += parameter.name.text;
      if (parameter.value) out += " = " + to_dsl(*parameter.value);
    }
    out += ")";
  }
  out += " {\n";
  for (const Clause& clause : spec.clauses) out += "  " + clause_line(clause) + "\n";
  return out + "}\n";
}

}  // namespace attn::ast
