#include "compiler/ir/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/ir/attention.h"
#include "runtime/base/check.h"

namespace attn::ir {
namespace {

using Integer = std::optional<std::int64_t>;

std::int64_t floor_quotient(std::int64_t x, std::int64_t y) {
  const std::int64_t quotient = x / y;
  return x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
}

// Divides integers of 64 bits; the quotient of the smallest by -1 wraps.
std::int64_t wide_quotient(std::int64_t x, std::int64_t y) {
  return y == -1 ? static_cast<std::int64_t>(-static_cast<std::uint64_t>(x)) : floor_quotient(x, y);
}

std::int64_t wide_remainder(std::int64_t x, std::int64_t y) {
  if (y == -1) return 0;
  const std::int64_t rest = x % y;
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

Integer wide_shifted(Op op, std::int64_t x, std::int64_t y) {
  if (y < 0 || y > 63) return std::nullopt;
  return op == Op::shift_left_ ? static_cast<std::int64_t>(static_cast<std::uint64_t>(x) << y)
                               : x >> y;
}

template <typename Number>
bool compared(Op op, Number x, Number y) {
  switch (op) {
    case Op::lt_: return x < y;
    case Op::le_: return x <= y;
    case Op::gt_: return x > y;
    case Op::ge_: return x >= y;
    case Op::eq_: return x == y;
    case Op::ne_: return x != y;
    default: check_failed(__FILE__, __LINE__, "comparison", info(op).name);
  }
}

Integer shifted(Op op, std::int64_t x, std::int64_t y) {
  if (y < 0 || y > 31) return std::nullopt;
  return op == Op::shift_left_ ? x * (std::int64_t{1} << y) : x >> y;
}

}  // namespace

std::optional<std::int64_t> value_of_integers(Op op, std::int64_t x, std::int64_t y) {
  switch (op) {
    case Op::add_: return x + y;
    case Op::sub_: return x - y;
    case Op::mul_: return x * y;
    case Op::floordiv_: return y == 0 ? Integer() : floor_quotient(x, y);
    case Op::mod_: return y == 0 ? Integer() : x - y * floor_quotient(x, y);
    case Op::min_: return std::min(x, y);
    case Op::max_: return std::max(x, y);
    case Op::neg_: return -x;
    case Op::abs_: return x < 0 ? -x : x;
    case Op::bit_and_: return x & y;
    case Op::bit_or_: return x | y;
    case Op::bit_xor_: return x ^ y;
    case Op::bit_not_: return ~x;
    case Op::shift_left_:
    case Op::shift_right_: return shifted(op, x, y);
    default: check_failed(__FILE__, __LINE__, "integer op", info(op).name);
  }
}

std::optional<std::int64_t> value_of_wide(Op op, std::int64_t x, std::int64_t y) {
  const auto a = static_cast<std::uint64_t>(x), b = static_cast<std::uint64_t>(y);
  const auto wrapped = [](std::uint64_t bits) { return static_cast<std::int64_t>(bits); };
  switch (op) {
    case Op::add_: return wrapped(a + b);
    case Op::sub_: return wrapped(a - b);
    case Op::mul_: return wrapped(a * b);
    case Op::floordiv_: return y == 0 ? Integer() : wide_quotient(x, y);
    case Op::mod_: return y == 0 ? Integer() : wide_remainder(x, y);
    case Op::neg_: return wrapped(-a);
    case Op::abs_: return x < 0 ? wrapped(-a) : x;
    case Op::shift_left_:
    case Op::shift_right_: return wide_shifted(op, x, y);
    default: return value_of_integers(op, x, y);
  }
}

std::int32_t narrowed(std::int64_t x) {
  using Limits = std::numeric_limits<std::int32_t>;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(x, Limits::min(), Limits::max()));
}

double value_of_reals(Op op, double x, double y) {
  switch (op) {
    case Op::add_: return x + y;
    case Op::sub_: return x - y;
    case Op::mul_: return x * y;
    case Op::div_: return x / y;
    case Op::floordiv_: return std::floor(x / y);
    case Op::mod_: return x - y * std::floor(x / y);
    case Op::min_: return std::isnan(x) || x < y ? x : y;
    case Op::max_: return std::isnan(x) || x > y ? x : y;
    case Op::neg_: return -x;
    case Op::abs_: return std::fabs(x);
    case Op::pow_: return std::pow(x, y);
    case Op::floor_: return std::floor(x);
    case Op::ceil_: return std::ceil(x);
#define ATTN_REAL_FUNCTION(name, id, operands, doc, value, ...) \
  case Op::name##_:                                             \
    return value;
#include "compiler/ir/real_functions.def"
#undef ATTN_REAL_FUNCTION
    default: check_failed(__FILE__, __LINE__, "real op", info(op).name);
  }
}

bool value_of_comparison(Op op, double x, double y) { return compared(op, x, y); }

bool value_of_wide_comparison(Op op, std::int64_t x, std::int64_t y) { return compared(op, x, y); }

std::optional<std::int64_t> truncated(double x) {
  const double whole = std::trunc(x);  // NaN fails the comparison
  if (!(whole >= -0x1p31 && whole < 0x1p31)) return std::nullopt;
  return static_cast<std::int64_t>(whole);
}

namespace {

using Folded = std::optional<Constant>;

Folded checked(std::int64_t value) {
  if (value < std::numeric_limits<std::int32_t>::min() ||
      value > std::numeric_limits<std::int32_t>::max()) {
    return std::nullopt;
  }
  return value;
}

Folded checked(const std::optional<std::int64_t>& value) {
  return value ? checked(*value) : std::nullopt;
}

Folded fold_integers(Op op, std::int64_t x, std::int64_t y) {
  switch (info(op).rule) {
    case Rule::comparison:
      return value_of_comparison(op, static_cast<double>(x), static_cast<double>(y));
    case Rule::to_real: return static_cast<double>(x);
    default: return checked(value_of_integers(op, x, y));
  }
}

Folded fold_reals(Op op, double x, double y) {
  switch (info(op).rule) {
    case Rule::comparison: return value_of_comparison(op, x, y);
    case Rule::truncate: return checked(truncated(x));
    default: return value_of_reals(op, x, y);
  }
}

Folded fold_booleans(Op op, bool x, bool y) {
  switch (op) {
    case Op::and_: return x && y;
    case Op::or_: return x || y;
    case Op::not_: return !x;
    case Op::to_real_: return x ? 1.0 : 0.0;
    case Op::to_int_: return std::int64_t{x};
    default: return std::nullopt;
  }
}

Folded leaf_value(const Dag& dag, ExprId id, const Dims& dims) {
  if (!dag[id].is(Op::dim_)) return constant_of(dag, id);
  const std::optional<Dim> dim = parse_dim(dag.symbol_of(id));
  const std::optional<std::int64_t> size = dim ? dims.get(*dim) : std::nullopt;
  return size ? checked(*size) : std::nullopt;
}

Folded fold_expression(const Dag& dag, ExprId root, const Dims& dims) {
  std::vector<Folded> values(root + std::size_t{1});
  const ExprId roots[] = {root};
  for (ExprId id : reachable(dag, roots)) {
    values[id] = leaf_value(dag, id, dims);
    if (values[id].has_value()) continue;
    std::vector<Constant> operands;
    for (ExprId operand : dag[id].operands) {
      if (values[operand].has_value()) operands.push_back(*values[operand]);
    }
    if (operands.size() == dag[id].operands.size()) values[id] = fold(dag[id].op, operands);
  }
  return values[root];
}

}  // namespace

std::optional<Constant> constant_of(const Dag& dag, ExprId id) {
  switch (dag[id].op) {
    case Op::const_bool_: return dag.boolean_of(id);
    case Op::const_int_: return dag.integer_of(id);
    case Op::const_real_: return dag.real_of(id);
    default: return std::nullopt;
  }
}

ExprId add_constant(Dag& dag, const Constant& value, SourcePos pos) {
  if (const bool* boolean = std::get_if<bool>(&value)) return dag.boolean(*boolean, pos);
  if (const double* real = std::get_if<double>(&value)) return dag.real(*real, pos);
  return dag.integer(std::get<std::int64_t>(value), pos);
}

std::optional<Constant> fold(Op op, std::span<const Constant> operands) {
  const Rule rule = info(op).rule;
  // Constants of 64 bits are not folded.
  if (operands.empty() || rule == Rule::symbol_type || rule == Rule::widen) return std::nullopt;
  if (op == Op::select_) return std::get<bool>(operands[0]) ? operands[1] : operands[2];
  const Constant& first = operands.front();
  const Constant& last = operands.back();
  if (const auto* x = std::get_if<std::int64_t>(&first)) {
    return fold_integers(op, *x, std::get<std::int64_t>(last));
  }
  if (const auto* x = std::get_if<double>(&first)) {
    return fold_reals(op, *x, std::get<double>(last));
  }
  return fold_booleans(op, std::get<bool>(first), std::get<bool>(last));
}

std::optional<std::int64_t> fold_integer(const Dag& dag, ExprId id) {
  return fold_integer(dag, id, Dims());
}

std::optional<std::int64_t> fold_integer(const Dag& dag, ExprId id, const Dims& dims) {
  if (dag[id].type != Type::integer) return std::nullopt;
  const Folded value = fold_expression(dag, id, dims);
  return value ? std::optional(std::get<std::int64_t>(*value)) : std::nullopt;
}

std::optional<double> fold_real(const Dag& dag, ExprId id) {
  if (dag[id].type != Type::real) return std::nullopt;
  const Folded value = fold_expression(dag, id, Dims());
  return value ? std::optional(std::get<double>(*value)) : std::nullopt;
}

}  // namespace attn::ir
