#include "compiler/ir/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

}  // namespace attn::ir
