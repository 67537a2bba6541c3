#include "compiler/engines/cudnn/whole_quotient.h"

#include <algorithm>
#include <cmath>

#include "compiler/masks/range.h"
#include "compiler/rewrite/reals.h"

namespace attn::engines {
namespace {

using ir::ExprId;
using ir::Op;

constexpr auto kExact = static_cast<double>(rewrite::kWholeInReals);

// The largest magnitude of a real that holds an integer; nothing for other reals.
std::optional<double> most(const ir::Attention& attention, ExprId id) {
  const ir::Node& node = attention.dag[id];
  if (node.is(Op::const_real_)) {
    const double value = attention.dag.real_of(id);
    return value == std::floor(value) ? std::optional(std::abs(value)) : std::nullopt;
  }
  if (node.is(Op::to_real_)) {
    if (attention.dag[node.operands[0]].type != ir::Type::integer) return {};
    const masks::Range range = masks::range_of(attention, node.operands[0]);
    return static_cast<double>(std::max(std::abs(range.low), std::abs(range.high)));
  }
  if (!node.is(Op::add_) && !node.is(Op::sub_)) return {};
  const std::optional<double> x = most(attention, node.operands[0]);
  const std::optional<double> y = most(attention, node.operands[1]);
  return x && y ? std::optional(*x + *y) : std::nullopt;
}

// The integer n of a constant 1 / n.
std::optional<double> inverse(const ir::Attention& attention, ExprId id) {
  if (!attention.dag[id].is(Op::const_real_)) return {};
  const double value = attention.dag.real_of(id);
  const double whole = std::round(1 / value);
  if (!(whole >= 1 && whole < kExact && value == 1 / whole)) return {};
  return whole;
}

bool is_half(const ir::Attention& attention, ExprId id) {
  return attention.dag[id].is(Op::const_real_) && attention.dag.real_of(id) == 0.5;
}

bool is_power_of_two(double whole) {
  int exponent = 0;
  return std::frexp(whole, &exponent) == 0.5;
}

}  // namespace

std::optional<WholeQuotient> whole_quotient(const ir::Attention& attention, ExprId id) {
  const ir::Node& product = attention.dag[id];
  if (!product.is(Op::mul_)) return {};
  const std::optional<double> divisor = inverse(attention, product.operands[1]);
  if (!divisor) return {};
  ExprId x = product.operands[0];
  const ir::Node& shifted = attention.dag[x];
  if (shifted.is(Op::add_) && is_half(attention, shifted.operands[1])) {
    x = shifted.operands[0];
  } else if (!is_power_of_two(*divisor)) {
    return {};
  }
  const std::optional<double> bound = most(attention, x);
  if (!bound || *bound >= kExact) return {};
  return WholeQuotient{x, *divisor};
}

}  // namespace attn::engines
