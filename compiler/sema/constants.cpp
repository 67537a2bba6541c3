#include "compiler/sema/constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

std::optional<Number> reals(Operator op, double x, double y) {
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
  return std::isfinite(result) ? std::optional<Number>(result) : std::nullopt;
}

std::optional<Number> apply(Operator op, const Number& x, const Number& y) {
  const auto* a = std::get_if<std::int64_t>(&x);
  const auto* b = std::get_if<std::int64_t>(&y);
  const bool stays = op != Operator::div && !(op == Operator::pow && b && *b < 0);
  return a && b && stays ? integers(op, *a, *b) : reals(op, real(x), real(y));
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
        "+ - * / // % **, min, max and abs";
    return Known::poisoned();
  }

  Known number(const Expr& expr) {
    if (const auto value = ast::parse_number(expr.text)) return Known::of(*value);
    sink_.report(Code::bad_number, expr.span,
                 fmt::format("{} does not fit in 64 bits", support::quoted(expr.text)));
    return Known::poisoned();
  }

  Known unary(const Expr& expr) {
    const Known value = run(expr.operands[0]);
    if (value.state != Known::State::value || expr.operators[0] == Operator::plus) return value;
    if (expr.operators[0] != Operator::negate) return fail(expr, "this is not a constant");
    return combined(expr, apply(Operator::mul, value.number, Number(std::int64_t{-1})));
  }

  Known binary(const Expr& expr) {
    const Operator op = expr.operators[0];
    const bool known = ast::precedence(op) >= ast::precedence(Operator::add);
    if (!known) return fail(expr, "this is not a constant");
    const Known x = run(expr.operands[0]);
    const Known y = run(expr.operands[1]);
    if (const auto outcome = unless_values(x, y)) return *outcome;
    return combined(expr, apply(op, x.number, y.number));
  }

  Known call(const Expr& expr) {
    const bool extremum = expr.text == "min" || expr.text == "max";
    const std::size_t count = expr.operands.size();
    if (!(extremum && count >= 2) && !(expr.text == "abs" && count == 1)) {
      return fail(expr, "this is not a constant");
    }
    Known best = run(expr.operands[0]);
    for (std::size_t i = 1; i < count; ++i) {
      const Known other = run(expr.operands[i]);
      if (const auto outcome = unless_values(best, other)) {
        best = *outcome;
      } else if ((real(other.number) < real(best.number)) == (expr.text == "min")) {
        best = other;
      }
    }
    const bool negative = best.state == Known::State::value && real(best.number) < 0;
    if (expr.text != "abs" || !negative) return best;
    return combined(expr, apply(Operator::mul, best.number, Number(std::int64_t{-1})));
  }

  static std::optional<Known> unless_values(const Known& x, const Known& y) {
    for (const auto state : {Known::State::poisoned, Known::State::open}) {
      if (x.state == state) return x;
      if (y.state == state) return y;
    }
    return std::nullopt;
  }

  Known combined(const Expr& expr, const std::optional<Number>& value) {
    if (value) return Known::of(*value);
    return fail(expr, "the value is undefined: a division by zero, or a result out of range");
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
