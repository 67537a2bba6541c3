#include "compiler/sema/constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/ir/real_function.h"
#include "compiler/ir/value.h"
#include "compiler/sema/names.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using ast::Expr;
using ast::ExprKind;
using ast::Number;
using ast::Operator;
using diag::Code;

double real(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

std::int64_t floor_quotient(std::int64_t x, std::int64_t y) {
  return x / y - ((x % y != 0 && (x < 0) != (y < 0)) ? 1 : 0);
}

std::optional<Number> integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (i >= 64 && (base < -1 || base > 1)) return std::nullopt;
    if (base == 0 || base == 1) return base;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    if (__builtin_mul_overflow(result, base, &result)) return std::nullopt;
  }
  return result;
}

// nullopt on overflow and for undefined values.
std::optional<Number> integers(Operator op, std::int64_t x, std::int64_t y) {
  std::int64_t result = 0;
  switch (op) {
    case Operator::add:
      return __builtin_add_overflow(x, y, &result) ? std::nullopt : std::optional<Number>(result);
    case Operator::sub:
      return __builtin_sub_overflow(x, y, &result) ? std::nullopt : std::optional<Number>(result);
    case Operator::mul:
      return __builtin_mul_overflow(x, y, &result) ? std::nullopt : std::optional<Number>(result);
    case Operator::floordiv:
      if (y == 0 || (y == -1 && x == INT64_MIN)) return std::nullopt;
      return floor_quotient(x, y);
    case Operator::mod:
      if (y == 0 || y == -1) return y == 0 ? std::nullopt : std::optional<Number>(std::int64_t{0});
      return x - y * floor_quotient(x, y);
    default: return integer_power(x, y);
  }
}

Number reals(Operator op, double x, double y) {
  double result = 0;
  switch (op) {
    case Operator::add: result = x + y; break;
    case Operator::sub: result = x - y; break;
    case Operator::mul: result = x * y; break;
    case Operator::div: result = x / y; break;
    case Operator::floordiv: result = std::floor(x / y); break;
    case Operator::mod: result = x - y * std::floor(x / y); break;
    default: result = std::pow(x, y); break;
  }
  return result;
}

std::optional<Number> apply(Operator op, const Number& x, const Number& y) {
  const auto* a = std::get_if<std::int64_t>(&x);
  const auto* b = std::get_if<std::int64_t>(&y);
  const bool stays = op != Operator::div && !(op == Operator::pow && b && *b < 0);
  return a && b && stays ? integers(op, *a, *b) : reals(op, real(x), real(y));
}

constexpr std::string_view kOfOne[] = {"abs", "floor", "ceil", "int", "float"};

// The value of one of kOfOne: of an integer, an integer, but for float.
std::optional<Number> of_one(std::string_view function, const Number& number) {
  const auto* integer = std::get_if<std::int64_t>(&number);
  const double x = real(number);
  if (function == "float") return x;
  if (function == "abs" && x < 0) return apply(Operator::mul, number, Number(std::int64_t{-1}));
  if (function == "abs" || integer) return number;
  if (function == "floor") return std::floor(x);
  if (function == "ceil") return std::ceil(x);
  if (!(std::abs(x) < 0x1p63)) return std::nullopt;
  return static_cast<std::int64_t>(x);
}

class Evaluator {
 public:
  Evaluator(const Lookup& lookup, diag::Sink& sink) : lookup_(lookup), sink_(sink) {}

  Known run(const Expr& expr) {
    switch (expr.kind) {
      case ExprKind::number: return number(expr);
      case ExprKind::name: return lookup_(expr.text, expr.span);
      case ExprKind::unary: return unary(expr);
      case ExprKind::binary: return binary(expr);
      case ExprKind::call: return call(expr);
      default: return fail(expr, "this is not a constant");
    }
  }

 private:
  Known fail(const Expr& expr, std::string message) {
    auto& diagnostic = sink_.report(Code::bad_operand, expr.span, std::move(message));
    diagnostic.help =
        "a constant may use numbers, dimensions and spec parameters with "
        "+ - * / // % **, and functions of numbers such as min, abs, int, sqrt and log";
    return Known::poisoned();
  }

  Known number(const Expr& expr, bool negated = false) {
    if (const auto value = ast::parse_number(expr.text, negated)) return Known::of(*value);
    sink_.report(Code::bad_number, expr.span,
                 fmt::format("{} does not fit in 64 bits", support::quoted(expr.text)));
    return Known::poisoned();
  }

  Known unary(const Expr& expr) {
    const Expr& operand = expr.operands[0];
    const bool negates = expr.operators[0] == Operator::negate;
    if (negates && operand.kind == ast::ExprKind::number) return number(operand, true);
    const Known value = run(operand);
    if (value.state != Known::State::value || expr.operators[0] == Operator::plus) return value;
    if (!negates) return fail(expr, "this is not a constant");
    return combined(expr, apply(Operator::mul, value.number, Number(std::int64_t{-1})));
  }

  Known binary(const Expr& expr) {
    const Operator op = expr.operators[0];
    const bool known = ast::precedence(op) >= ast::precedence(Operator::add);
    if (!known) return fail(expr, "this is not a constant");
    return operation(expr, op);
  }

  Known operation(const Expr& expr, Operator op) {
    const Known x = run(expr.operands[0]);
    const Known y = run(expr.operands[1]);
    if (const auto outcome = unless_values(x, y)) return *outcome;
    return combined(expr, apply(op, x.number, y.number));
  }

  Known call(const Expr& expr) {
    const std::string& name = expr.text;
    const std::size_t count = expr.operands.size();
    const bool is_least = name == "min" || name == "minimum";
    if ((is_least || name == "max" || name == "maximum") && count >= 2)
      return extremum(expr, is_least);
    if (name == "pow" && count == 2) return operation(expr, Operator::pow);
    if (name == "clamp" && count == 3) return clamp(expr);
    const auto op = ir::parse_op(name);
    const bool is_real = op && ir::find_real_function(*op) != nullptr;
    const bool is_known = (is_real && count == static_cast<std::size_t>(ir::info(*op).operands)) ||
                          (count == 1 && contains(kOfOne, name));
    if (!is_known) return fail(expr, "this is not a constant");
    const Known x = run(expr.operands[0]);
    const Known y = count == 2 ? run(expr.operands[1]) : x;
    if (const auto outcome = unless_values(x, y)) return *outcome;
    if (is_real) return combined(expr, ir::value_of_reals(*op, real(x.number), real(y.number)));
    return combined(expr, of_one(name, x.number));
  }

  Known extremum(const Expr& expr, bool is_least) {
    Known best = run(expr.operands[0]);
    for (std::size_t i = 1; i < expr.operands.size(); ++i) {
      best = better(best, run(expr.operands[i]), is_least);
    }
    return best;
  }

  static Known better(const Known& x, const Known& y, bool is_least) {
    if (const auto outcome = unless_values(x, y)) return *outcome;
    return (real(y.number) < real(x.number)) == is_least ? y : x;
  }

  // min(max(x, low), high)
  Known clamp(const Expr& expr) {
    const Known x = run(expr.operands[0]), low = run(expr.operands[1]);
    return better(better(x, low, false), run(expr.operands[2]), true);
  }

  static std::optional<Known> unless_values(const Known& x, const Known& y) {
    for (const auto state : {Known::State::poisoned, Known::State::open}) {
      if (x.state == state) return x;
      if (y.state == state) return y;
    }
    return std::nullopt;
  }

  Known combined(const Expr& expr, const std::optional<Number>& value) {
    const auto* real = value ? std::get_if<double>(&*value) : nullptr;
    if (value && (!real || std::isfinite(*real))) return Known::of(*value);
    return fail(expr, "the value is undefined, such as 1 / 0 and sqrt(-1), or out of range");
  }

  const Lookup& lookup_;
  diag::Sink& sink_;
};

}  // namespace

std::optional<std::int64_t> Known::integer() const {
  const auto* value = std::get_if<std::int64_t>(&number);
  return state == State::value && value ? std::optional(*value) : std::nullopt;
}

Known evaluate(const Expr& expr, const Lookup& lookup, diag::Sink& sink) {
  return Evaluator(lookup, sink).run(expr);
}

}  // namespace attn::sema
