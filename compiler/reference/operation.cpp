#include "compiler/reference/operation.h"

#include <cmath>
#include <cstdint>

#include "runtime/base/check.h"

namespace attn::reference {
namespace {

using ir::Op;

double wrapped(std::int64_t value) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(value));
}

std::optional<double> shift(Op op, std::int64_t x, std::int64_t y) {
  if (y < 0 || y >= 32) return std::nullopt;
  return wrapped(op == Op::shift_left_ ? x << y : x >> y);
}

// The quotient of 32-bit integers is exact enough in double for floor to be right.
std::int64_t floor_division(std::int64_t x, std::int64_t y) {
  return static_cast<std::int64_t>(std::floor(static_cast<double>(x) / static_cast<double>(y)));
}

std::optional<double> integer_operation(Op op, std::int64_t x, std::int64_t y) {
  switch (op) {
    case Op::add_: return wrapped(x + y);
    case Op::sub_: return wrapped(x - y);
    case Op::mul_: return wrapped(x * y);
    case Op::floordiv_:
      if (y == 0) return std::nullopt;
      return wrapped(floor_division(x, y));
    case Op::mod_:
      if (y == 0) return std::nullopt;
      return wrapped(x - y * floor_division(x, y));
    case Op::min_: return wrapped(x < y ? x : y);
    case Op::max_: return wrapped(x > y ? x : y);
    case Op::neg_: return wrapped(-x);
    case Op::abs_: return wrapped(x < 0 ? -x : x);
    case Op::bit_and_: return wrapped(x & y);
    case Op::bit_or_: return wrapped(x | y);
    case Op::bit_xor_: return wrapped(x ^ y);
    case Op::bit_not_: return wrapped(~x);
    case Op::shift_left_:
    case Op::shift_right_: return shift(op, x, y);
    default: check_failed(__FILE__, __LINE__, "integer op", ir::info(op).name);
  }
}

double real_operation(Op op, double x, double y) {
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
    case Op::exp_: return std::exp(x);
    case Op::exp2_: return std::exp2(x);
    case Op::log_: return std::log(x);
    case Op::log2_: return std::log2(x);
    case Op::sqrt_: return std::sqrt(x);
    case Op::rsqrt_: return 1.0 / std::sqrt(x);
    case Op::tanh_: return std::tanh(x);
    case Op::sigmoid_: return 1.0 / (1.0 + std::exp(-x));
    case Op::erf_: return std::erf(x);
    case Op::sin_: return std::sin(x);
    case Op::cos_: return std::cos(x);
    case Op::tan_: return std::tan(x);
    default: check_failed(__FILE__, __LINE__, "real op", ir::info(op).name);
  }
}

std::optional<double> truncated(double x) {
  const double whole = std::trunc(x);  // NaN fails both bounds
  if (!(whole >= -0x1p31 && whole < 0x1p31)) return std::nullopt;
  return whole + 0.0;  // turns -0.0 into 0.0
}

bool comparison(Op op, double x, double y) {
  switch (op) {
    case Op::lt_: return x < y;
    case Op::le_: return x <= y;
    case Op::gt_: return x > y;
    case Op::ge_: return x >= y;
    case Op::eq_: return x == y;
    case Op::ne_: return x != y;
    default: check_failed(__FILE__, __LINE__, "comparison", ir::info(op).name);
  }
}

}  // namespace

std::optional<double> operation(Op op, ir::Type type, std::span<const double> operands) {
  const double x = operands.front();
  const double y = operands.back();
  const ir::Rule rule = ir::info(op).rule;
  if (op == Op::not_) return x == 0 ? 1.0 : 0.0;
  if (rule == ir::Rule::comparison) return comparison(op, x, y) ? 1.0 : 0.0;
  if (rule == ir::Rule::to_real || rule == ir::Rule::to_int) return x;
  if (op == Op::truncate_) return truncated(x);
  if (type == ir::Type::real) return real_operation(op, x, y);
  return integer_operation(op, static_cast<std::int64_t>(x), static_cast<std::int64_t>(y));
}

}  // namespace attn::reference
