// Operations on bits, and what else `^` and `&` were meant to be.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ast/print.h"
#include "compiler/sema/operations.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using ast::Operator;
using diag::Code;
using ir::Op;
using ir::Type;
using support::quoted;

// The operand of `**` if it were written at an end of the expression: D at that of `1 / D`.
const ast::Expr& beside(const ast::Expr& expr, bool at_begin) {
  if (expr.kind != ast::ExprKind::binary || expr.grouped) return expr;
  return beside(at_begin ? expr.operands.front() : expr.operands.back(), at_begin);
}

}  // namespace

// In `D ^ -0.5`, `^` is meant as a power.
bool Operations::explain_power(Operands operands, diag::Diagnostic& diagnostic) {
  const auto is_number = [](const Value& value) { return value.type != Type::boolean; };
  const bool is_xor = at_->kind == ast::ExprKind::binary && at_->operators[0] == Operator::bit_xor;
  if (!is_xor || !std::ranges::all_of(operands, is_number)) return false;
  diagnostic.help = fmt::format("a power is written `{} ** {}`; `^` is exclusive or",
                                ast::to_dsl(beside(at_->operands[0], false)),
                                ast::to_dsl(beside(at_->operands[1], true)));
  if (!sink_.locate(at_->head).source->is_json()) diagnostic.add_replacement(at_->head, "**");
  return true;
}

// In `(a >= b) & c < d`, `&` is meant between two comparisons.
bool Operations::explain_precedence(diag::Diagnostic& diagnostic) {
  if (comparison_ == nullptr) return false;
  Logical logical = with_logical_signs(*comparison_, sink_);
  if (std::ranges::find(logical.edits, at_->head, &diag::Edit::span) == logical.edits.end()) {
    return false;
  }
  diagnostic.help = fmt::format("write `{}`: {} binds tighter than comparisons, as in Python",
                                logical.text, quoted(ast::spelling(at_->operators[0])));
  diagnostic.fixes.push_back({fmt::format("write `{}`", logical.text), std::move(logical.edits)});
  return true;
}

void Operations::mixed_bits(Operands operands) {
  const std::string types =
      operands.size() == 1
          ? std::string(in_words(operands[0].type))
          : fmt::format("{} and {}", in_words(operands[0].type), in_words(operands[1].type));
  auto& diagnostic =
      report(Code::mixed_bits, at_->head, fmt::format("bit operations do not apply to {}", types));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    diagnostic.labels.push_back({at_->operands[i].span, std::string(in_words(operands[i].type))});
  }
  if (explain_power(operands, diagnostic)) return;
  if (explain_precedence(diagnostic)) return;
  const bool any_boolean =
      std::ranges::find(operands, Type::boolean, &Value::type) != operands.end();
  diagnostic.help = "bit operations need integers; `&`, `|` and `^` also take two booleans";
  if (at_->kind != ast::ExprKind::binary || !any_boolean) return;
  const ast::Expr& number = at_->operands[operands[0].type == Type::boolean ? 1 : 0];
  const bool is_weak = number.kind == ast::ExprKind::binary && !number.grouped &&
                       ast::precedence(number.operators[0]) < ast::precedence(Operator::bit_or);
  const std::string text = ast::to_dsl(number);
  diagnostic.help = fmt::format("{} is {}: compare it, for example `({} != 0)`", quoted(text),
                                in_words(operands[operands[0].type == Type::boolean ? 1 : 0].type),
                                is_weak ? fmt::format("({})", text) : text);
}

// Logical on two booleans, bitwise on two integers.
std::optional<Value> Operations::bits(Op op, Operands operands) {
  const Type type = operands[0].type;
  if (are_integers(operands)) return build(op, unified(operands));
  if (type != operands[1].type || type == Type::real) {
    mixed_bits(operands);
    return std::nullopt;
  }
  if (op == Op::bit_xor_) return build(Op::ne_, {to_number(operands[0]), to_number(operands[1])});
  return build(op == Op::bit_and_ ? Op::and_ : Op::or_, operands);
}

std::optional<Value> Operations::complement(Op op, Operands operands) {
  if (operands[0].type == Type::boolean) return build(Op::not_, operands);
  if (are_integers(operands)) return build(op, operands);
  mixed_bits(operands);
  return std::nullopt;
}

bool Operations::are_integers(Operands operands) {
  return std::ranges::all_of(operands, [](const Value& x) { return ir::is_integral(x.type); });
}

std::optional<Value> Operations::shift(Op op, Operands operands) {
  if (!are_integers(operands)) {
    mixed_bits(operands);
    return std::nullopt;
  }
  const std::vector<Value> values = unified(operands);
  if (dag_[operands[1].id].is(Op::const_int_)) {
    const std::int64_t count = dag_.integer_of(operands[1].id);
    const int most = ir::most_shift(values[0].type);
    if (count < 0 || count > most) {
      report(Code::bad_operand, at_->operands[1].span,
             fmt::format("shift by {}: integers have {} bits", count, most + 1));
      return std::nullopt;
    }
  }
  return build(op, values);
}

}  // namespace attn::sema
