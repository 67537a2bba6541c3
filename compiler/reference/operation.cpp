#include "compiler/reference/operation.h"

#include <cstdint>

#include "compiler/ir/value.h"

namespace attn::reference {
namespace {

using ir::Op;
using ir::Rule;

std::optional<double> wrapped(const std::optional<std::int64_t>& value) {
  if (!value) return std::nullopt;
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(*value));
}

std::optional<double> of_wide(Op op, std::int64_t x, std::int64_t y) {
  switch (ir::info(op).rule) {
    case Rule::comparison: return ir::value_of_wide_comparison(op, x, y) ? 1.0 : 0.0;
    case Rule::to_real: return static_cast<double>(x);
    case Rule::narrow: return ir::narrowed(x);
    default: break;
  }
  const auto value = ir::value_of_wide(op, x, y);
  return value ? std::optional(as_bits(*value)) : std::nullopt;
}

}  // namespace

std::optional<double> operation(Op op, ir::Type type, std::span<const double> operands) {
  const double x = operands.front();
  const double y = operands.back();
  if (type == ir::Type::wide) return of_wide(op, wide_of(x), wide_of(y));
  if (op == Op::not_) return x == 0 ? 1.0 : 0.0;
  switch (ir::info(op).rule) {
    case Rule::comparison: return ir::value_of_comparison(op, x, y) ? 1.0 : 0.0;
    case Rule::to_real:
    case Rule::to_int: return x;
    case Rule::truncate: return wrapped(ir::truncated(x));
    case Rule::widen: return as_bits(static_cast<std::int64_t>(x));
    default: break;
  }
  if (type == ir::Type::real) return ir::value_of_reals(op, x, y);
  return wrapped(
      ir::value_of_integers(op, static_cast<std::int64_t>(x), static_cast<std::int64_t>(y)));
}

}  // namespace attn::reference
