#include "compiler/ast/ast.h"

#include <algorithm>

#include "compiler/ast/walk.h"

namespace attn::ast {
namespace {

struct OperatorInfo {
  std::string_view spelling;
  int arity;
  int precedence;
};

constexpr OperatorInfo kOperators[] = {
#define ATTN_OPERATOR(name, spelling, arity, precedence) {spelling, arity, precedence},
#include "compiler/ast/operators.def"
#undef ATTN_OPERATOR
};

const OperatorInfo& info(Operator op) { return kOperators[static_cast<std::size_t>(op)]; }

}  // namespace

std::string_view spelling(Operator op) { return info(op).spelling; }
int arity(Operator op) { return info(op).arity; }
int precedence(Operator op) { return info(op).precedence; }
bool is_comparison(Operator op) { return precedence(op) == precedence(Operator::lt); }

std::optional<Operator> parse_operator(std::string_view spelling, int arity) {
  for (std::size_t i = 0; i < std::size(kOperators); ++i) {
    if (kOperators[i].spelling == spelling && kOperators[i].arity == arity) {
      return static_cast<Operator>(i);
    }
  }
  return std::nullopt;
}

Expr make_expr(ExprKind kind, Span head, std::string text, std::vector<Operator> operators,
               std::vector<Expr> operands) {
  Expr expr{kind, head, head, std::move(text), std::move(operators), std::move(operands)};
  for (const Expr& operand : expr.operands) {
    expr.span.begin = std::min(expr.span.begin, operand.span.begin);
    expr.span.end = std::max(expr.span.end, operand.span.end);
    expr.depth = std::max(expr.depth, operand.depth + 1);
  }
  return expr;
}

void shift(Spec& spec, std::uint32_t offset) {
  const auto move = [offset](Span& span) {
    span.begin += offset;
    span.end += offset;
  };
  Walk(move, [](Expr&) {})(spec);
}

}  // namespace attn::ast
