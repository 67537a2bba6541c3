#include "compiler/sema/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "compiler/ast/print.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using ast::Operator;
using diag::Code;
using ir::Op;
using ir::Type;
using support::quoted;

constexpr std::uint64_t kUncounted = std::uint64_t{1} << 40;

Op comparison_op(Operator op) {
  switch (op) {
    case Operator::lt: return Op::lt_;
    case Operator::le: return Op::le_;
    case Operator::gt: return Op::gt_;
    case Operator::ge: return Op::ge_;
    case Operator::eq: return Op::eq_;
    default: return Op::ne_;
  }
}

}  // namespace

std::string_view in_words(Type type) {
  switch (type) {
    case Type::boolean: return "a boolean";
    case Type::integer: return "an integer";
    case Type::wide: return "a 64-bit integer";
    case Type::real: return "a real";
  }
  return "";
}

namespace {

// Collects the signs `&` and `|` that stand beside comparisons without parentheses.
void find_signs(const ast::Expr& expr, std::vector<const ast::Expr*>& found) {
  if (expr.kind == ast::ExprKind::compare) {
    for (const ast::Expr& operand : expr.operands) {
      if (!operand.grouped) find_signs(operand, found);
    }
  }
  if (expr.kind != ast::ExprKind::binary) return;
  const Operator op = expr.operators[0];
  if (op != Operator::bit_and && op != Operator::bit_or) return;
  for (const ast::Expr& operand : expr.operands) {
    if (!operand.grouped) find_signs(operand, found);
  }
  found.push_back(&expr);
}

}  // namespace

Logical with_logical_signs(const ast::Expr& expr, const diag::Sink& sink) {
  constexpr std::size_t kLongest = 100;
  const diag::Location place = sink.locate(expr.span);
  if (place.source->is_json()) return {};
  std::vector<const ast::Expr*> signs;
  find_signs(expr, signs);
  std::ranges::sort(signs, {}, [](const ast::Expr* one) { return one->head.begin; });
  Logical result;
  const std::uint32_t offset = expr.span.begin - place.span.begin;
  std::uint32_t copied = expr.span.begin;
  const auto copy_until = [&](std::uint32_t end) {
    result.text += place.source->text().substr(copied - offset, end - copied);
    copied = end;
  };
  for (const ast::Expr* one : signs) {
    copy_until(one->head.end);
    const std::string_view sign = ast::spelling(one->operators[0]);
    result.text += sign;
    result.edits.push_back({one->head, fmt::format("{0}{0}", sign)});
  }
  copy_until(expr.span.end);
  const bool fits = result.text.size() <= kLongest && result.text.find('\n') == result.text.npos;
  return signs.empty() || !fits ? Logical{} : result;
}

std::string with_parentheses(std::string_view sign) {
  const std::string_view logical = sign == "&" ? "&&" : sign == "|" ? "||" : "";
  const std::string alternative =
      logical.empty() ? "" : fmt::format(" or `a >= b {} c < d`", logical);
  return fmt::format("write `(a >= b) {} (c < d)`{}", sign, alternative);
}

std::vector<std::string_view> function_names() {
  std::vector<std::string_view> names;
  for (const auto& function : Operations::functions()) names.push_back(function.name);
  return names;
}

std::span<const Operations::Function> Operations::functions() {
  static constexpr Function kFunctions[] = {
#define ATTN_FUNCTION(name, fewest, most, handler, op) \
  {#name, fewest, most, &Operations::handler, Op::op},
#include "compiler/sema/functions.def"
#undef ATTN_FUNCTION
#define ATTN_REAL_FUNCTION(name, id, operands, ...) \
  {#name, operands, operands, &Operations::real_function, Op::name##_},
#include "compiler/ir/real_functions.def"
#undef ATTN_REAL_FUNCTION
  };
  return kFunctions;
}

std::optional<Value> Operations::apply(const ast::Expr& expr, Operands operands) {
  at_ = &expr;
  switch (expr.kind) {
    case ast::ExprKind::unary: return unary(operands);
    case ast::ExprKind::compare: return compare(operands);
    case ast::ExprKind::call: return call(operands);
    default: return binary(operands);
  }
}

Value Operations::build(Op op, Operands operands) {
  Value result;
  std::vector<ir::ExprId> ids;
  for (const Value& operand : operands) {
    ids.push_back(operand.id);
    result.uses |= operand.uses;
    result.depth = std::max(result.depth, operand.depth + 1);
    result.size = std::min(result.size + operand.size, kUncounted);
  }
  result.id = dag_.add(op, ids, {}, at_ ? place(at_->head) : ir::SourcePos{});
  result.type = dag_[result.id].type;
  return result;
}

ir::SourcePos Operations::place(support::Span span) const {
  const diag::Location location = sink_.locate(span);
  const bool own = location.source == &sink_.source();
  const support::Place place = sink_.source().place(own ? span.begin : outermost_call_.begin);
  return {place.line, place.column};
}

diag::Diagnostic& Operations::report(Code code, support::Span span, std::string message) {
  return sink_.report(code, span, std::move(message));
}

std::optional<Value> Operations::reduce(const ast::Expr& expr, Operands values) {
  at_ = &expr;
  if (expr.text == "min" || expr.text == "max") {
    return extremum(expr.text == "min" ? Op::min_ : Op::max_, values);
  }
  const bool sums = expr.text == "sum";
  if (!sums &&
      std::ranges::any_of(values, [](const Value& value) { return value.type != Type::boolean; })) {
    report(Code::type_mismatch, expr.operands[3].span,
           fmt::format("{} needs booleans, found {}", quoted(expr.text), in_words(values[0].type)));
    return std::nullopt;
  }
  // Terms are joined in pairs, to keep the depth small.
  const Op op = sums ? Op::add_ : expr.text == "any" ? Op::or_ : Op::and_;
  std::vector<Value> level =
      sums ? unified(values) : std::vector<Value>(values.begin(), values.end());
  while (level.size() > 1) {
    std::vector<Value> next;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) {
      next.push_back(build(op, {level[i], level[i + 1]}));
    }
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = std::move(next);
  }
  return level[0];
}

Value Operations::to_number(const Value& value) {
  return value.type == Type::boolean ? build(Op::to_int_, {value}) : value;
}

Value Operations::to_wide(const Value& value) {
  const Value number = to_number(value);
  if (number.type == Type::wide) return number;
  const ir::Node& node = dag_[number.id];
  if (!node.is(Op::const_int_)) return build(Op::widen_, {number});
  return leaf(dag_.wide(dag_.integer_of(number.id), node.pos), number.uses);
}

Value Operations::narrowed(const Value& value) {
  return value.type == Type::wide ? build(Op::narrow_, {value}) : value;
}

Value Operations::to_real(const Value& value) {
  if (value.type == Type::real) return value;
  const ir::Node& node = dag_[value.id];
  if (!node.is(Op::const_int_) && !node.is(Op::const_wide_)) return build(Op::to_real_, {value});
  const ir::SourcePos pos = node.pos;
  return leaf(dag_.real(static_cast<double>(dag_.integer_of(value.id)), pos), value.uses);
}

std::vector<Value> Operations::unified(Operands operands) {
  const auto has = [&](Type type) {
    return std::ranges::find(operands, type, &Value::type) != operands.end();
  };
  const bool any_real = has(Type::real), any_wide = has(Type::wide);
  std::vector<Value> result;
  for (const Value& operand : operands) {
    result.push_back(any_real   ? to_real(operand)
                     : any_wide ? to_wide(operand)
                                : to_number(operand));
  }
  return result;
}

Value Operations::real(double value) {
  return leaf(dag_.real(value, place(at_->head)), kConstants);
}

bool Operations::is_zero(const Value& value) const {
  return dag_[value.id].is(Op::const_int_) && dag_.integer_of(value.id) == 0;
}

std::optional<Value> Operations::unary(Operands operands) {
  switch (at_->operators[0]) {
    case Operator::negate: return negate(operands[0]);
    case Operator::plus: return to_number(operands[0]);
    case Operator::logical_not: return logic(Op::not_, operands);
    default: return complement(Op::bit_not_, operands);
  }
}

std::optional<Value> Operations::binary(Operands operands) {
  switch (at_->operators[0]) {
    case Operator::logical_or: return logic(Op::or_, operands);
    case Operator::logical_and: return logic(Op::and_, operands);
    case Operator::bit_or: return bits(Op::bit_or_, operands);
    case Operator::bit_xor: return bits(Op::bit_xor_, operands);
    case Operator::bit_and: return bits(Op::bit_and_, operands);
    case Operator::shift_left: return shift(Op::shift_left_, operands);
    case Operator::shift_right: return shift(Op::shift_right_, operands);
    case Operator::add: return arithmetic(Op::add_, operands);
    case Operator::sub: return arithmetic(Op::sub_, operands);
    case Operator::mul: return arithmetic(Op::mul_, operands);
    case Operator::div: return real_function(Op::div_, operands);
    case Operator::floordiv: return quotient(Op::floordiv_, operands);
    case Operator::mod: return quotient(Op::mod_, operands);
    default: return power(Op::pow_, operands);
  }
}

// a < b <= c is (a < b) && (b <= c).
std::optional<Value> Operations::compare(Operands operands) {
  std::optional<Value> all;
  for (std::size_t i = 0; i < at_->operators.size(); ++i) {
    const std::vector<Value> pair = unified(operands.subspan(i, 2));
    const Value one = build(comparison_op(at_->operators[i]), pair);
    all = all ? build(Op::and_, {*all, one}) : one;
  }
  return all;
}

std::optional<Value> Operations::call(Operands operands) {
  const auto* function = std::ranges::find(functions(), at_->text, &Function::name).base();
  if (operands.size() >= function->fewest && operands.size() <= function->most) {
    return (this->*function->handler)(function->op, operands);
  }
  const std::string wanted =
      function->fewest == function->most
          ? support::count_of(function->fewest, "argument")
          : fmt::format("{} to {} arguments", function->fewest, function->most);
  report(Code::wrong_argument_count, at_->span,
         fmt::format("{} takes {}, found {}", quoted(at_->text), wanted, operands.size()));
  return std::nullopt;
}

std::optional<Value> Operations::arithmetic(Op op, Operands operands) {
  return build(op, unified(operands));
}

std::optional<Value> Operations::quotient(Op op, Operands operands) {
  if (is_zero(operands[1])) {
    report(Code::bad_operand, at_->operands[1].span, "division by zero");
    return std::nullopt;
  }
  return arithmetic(op, operands);
}

std::optional<Value> Operations::select(Op op, Operands operands) {
  if (operands[0].type != Type::boolean) {
    report(Code::type_mismatch, at_->operands[0].span,
           fmt::format("the condition must be a boolean, found {}", in_words(operands[0].type)))
        .help = "compare it, for example `!= 0`";
    return std::nullopt;
  }
  const bool booleans = operands[1].type == Type::boolean && operands[2].type == Type::boolean;
  if (booleans) return build(op, operands);
  const std::vector<Value> branches = unified(operands.subspan(1));
  return build(op, {operands[0], branches[0], branches[1]});
}

std::optional<Value> Operations::extremum(Op op, Operands operands) {
  const std::vector<Value> values = unified(operands);
  Value best = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) best = build(op, {best, values[i]});
  return best;
}

// min(max(x, low), high), as torch.clamp.
std::optional<Value> Operations::clamp(Op op, Operands operands) {
  const std::vector<Value> values = unified(operands);
  return build(op, {build(Op::max_, {values[0], values[1]}), values[2]});
}

std::optional<Value> Operations::arithmetic_function(Op op, Operands operands) {
  return build(op, {to_number(operands[0])});
}

std::optional<Value> Operations::rounding(Op op, Operands operands) {
  const Value value = to_number(operands[0]);
  return ir::is_integral(value.type) ? value : build(op, {value});
}

std::optional<Value> Operations::truncation(Op op, Operands operands) {
  const Value value = to_number(operands[0]);
  if (value.type == Type::wide) return lower_half(value);
  return ir::is_integral(value.type) ? value : build(op, {value});
}

// Shifts leave what has 32 bits, so that the nearest integer of 32 bits is the same.
Value Operations::lower_half(const Value& value) {
  const ir::Node& node = dag_[value.id];
  if (node.is(Op::widen_)) {
    return {node.operands[0], Type::integer, value.uses, value.depth, value.size};
  }
  if (node.is(Op::const_wide_)) {
    const auto half = static_cast<std::int32_t>(dag_.integer_of(value.id));
    return leaf(dag_.integer(half, node.pos), value.uses);
  }
  const auto shift = [&] { return leaf(dag_.wide(32, place(at_->head)), kConstants); };
  const Value upper = build(Op::shift_left_, {value, shift()});
  return narrowed(build(Op::shift_right_, {upper, shift()}));
}

std::optional<Value> Operations::widening(Op op, Operands operands) {
  const Value value = to_number(operands[0]);
  return to_wide(value.type == Type::real ? build(op, {value}) : value);
}

std::optional<Value> Operations::conversion(Op, Operands operands) { return to_real(operands[0]); }

std::optional<Value> Operations::real_function(Op op, Operands operands) {
  std::vector<Value> values;
  for (const Value& operand : operands) values.push_back(to_real(operand));
  return build(op, values);
}

std::optional<Value> Operations::power(Op op, Operands operands) {
  const Value base = to_number(operands[0]);
  const ir::Node& exponent = dag_[operands[1].id];
  if (ir::is_integral(base.type) && exponent.is(Op::const_int_)) {
    const std::int64_t value = dag_.integer_of(operands[1].id);
    if (value >= 0) return integer_power(base, value);
  }
  return real_function(op, operands);
}

// Integers stay integers, by multiplication: x ** 5 = x * (x * x) * (x * x).
std::optional<Value> Operations::integer_power(const Value& base, std::int64_t exponent) {
  if (dag_[base.id].is(Op::const_int_)) {
    const std::int64_t number = dag_.integer_of(base.id);
    std::int64_t result = 1;
    for (std::int64_t i = 0; i < exponent && result <= kLargest && result >= -kLargest; ++i) {
      if (number == 0 || number == 1) result = number;
      if (number == 0 || number == 1) break;
      if (number == -1) result = exponent % 2 == 0 ? 1 : -1;
      if (number == -1) break;
      result *= number;
    }
    if (result <= kLargest && result >= -kLargest) {
      return leaf(dag_.integer(result, place(at_->head)), kConstants);
    }
    report(Code::bad_operand, at_->span, "the power does not fit in 32 bits").help =
        "`long(2) ** 40` has 64 bits, `2.0 ** 40` is a real";
    return std::nullopt;
  }
  std::optional<Value> result;
  Value square = base;
  for (std::int64_t rest = exponent; rest > 0; rest /= 2) {
    if (rest % 2 == 1) result = result ? build(Op::mul_, {*result, square}) : square;
    if (rest > 1) square = build(Op::mul_, {square, square});
  }
  if (result) return result;
  const Value one = leaf(dag_.integer(1, place(at_->head)), kConstants);
  return base.type == Type::wide ? to_wide(one) : one;
}

// x/2 (1 + erf(x / sqrt 2)): the exact form, PyTorch's default.
std::optional<Value> Operations::gelu(Op op, Operands operands) {
  constexpr double kInverseRoot2 = 0.70710678118654752440;
  const Value x = to_real(operands[0]);
  const Value inner = build(op, {build(Op::mul_, {x, real(kInverseRoot2)})});
  return build(Op::mul_, {build(Op::mul_, {real(0.5), x}), build(Op::add_, {real(1), inner})});
}

std::optional<Value> Operations::silu(Op op, Operands operands) {
  const Value x = to_real(operands[0]);
  return build(Op::mul_, {x, build(op, {x})});
}

std::optional<Value> Operations::relu(Op op, Operands operands) {
  const Value x = to_number(operands[0]);
  const Value zero = leaf(dag_.integer(0, place(at_->head)), kConstants);
  return build(op, unified(std::array{x, zero}));
}

// max(x, 0) + log(1 + exp(-|x|)): no overflow for large x.
std::optional<Value> Operations::softplus(Op op, Operands operands) {
  const Value x = to_real(operands[0]);
  const Value decay = build(Op::exp_, {build(Op::neg_, {build(Op::abs_, {x})})});
  const Value tail = build(op, {build(Op::add_, {real(1), decay})});
  return build(Op::add_, {build(Op::max_, {x, real(0)}), tail});
}

// NaN alone differs from itself.
std::optional<Value> Operations::is_nan(Op op, Operands operands) {
  const Value x = to_real(operands[0]);
  return build(op, {x, x});
}

bool Operations::need_booleans(Operands operands) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].type == Type::boolean) continue;
    const std::string_view sign = ast::spelling(at_->operators[0]);
    auto& diagnostic = report(
        Code::type_mismatch, at_->operands[i].span,
        fmt::format("{} needs booleans, found {}", quoted(sign), in_words(operands[i].type)));
    diagnostic.help = operands.size() == 1 ? "put the negated expression in parentheses: `!(a < b)`"
                                           : "compare it, for example `!= 0`";
    return false;
  }
  return true;
}

std::optional<Value> Operations::logic(Op op, Operands operands) {
  if (!need_booleans(operands)) return std::nullopt;
  return build(op, operands);
}

Value Operations::negate(const Value& value) {
  const ir::Node& node = dag_[value.id];
  if (node.is(Op::const_int_)) {
    return leaf(dag_.integer(-dag_.integer_of(value.id), place(at_->head)), kConstants);
  }
  if (node.is(Op::const_real_)) {
    return leaf(dag_.real(-dag_.real_of(value.id), place(at_->head)), kConstants);
  }
  return build(Op::neg_, {to_number(value)});
}

}  // namespace attn::sema
