#include "compiler/ir/value.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"

namespace attn::ir {
namespace {

using Integer = std::optional<std::int64_t>;

std::int64_t floor_quotient(std::int64_t x, std::int64_t y) {
  const std::int64_t quotient = x / y;
  return x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
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

bool value_of_comparison(Op op, double x, double y) {
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

std::optional<std::int64_t> truncated(double x) {
  const double whole = std::trunc(x);  // NaN fails the comparison
  if (!(whole >= -0x1p31 && whole < 0x1p31)) return std::nullopt;
  return static_cast<std::int64_t>(whole);
}

}  // namespace attn::ir
