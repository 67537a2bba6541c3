#include "compiler/passes/range.h"

#include <algorithm>
#include <array>

namespace attn::passes {
namespace {

using ir::Op;

constexpr Range kAny{};

Range clip(std::int64_t low, std::int64_t high) {
  // A value outside 32 bits would wrap, so nothing is known of it.
  if (low < kAny.low || high > kAny.high) return kAny;
  return {low, high};
}

Range index_below(std::optional<std::int64_t> size) {
  return size ? Range{0, *size - 1} : Range{0, kAny.high};
}

Range of_products(const std::array<std::int64_t, 4>& corners) {
  const auto [low, high] = std::minmax_element(corners.begin(), corners.end());
  return clip(*low, *high);
}

Range magnitude(Range x) {
  const std::int64_t high = std::max(std::abs(x.low), std::abs(x.high));
  if (x.low <= 0 && x.high >= 0) return clip(0, high);
  return clip(std::min(std::abs(x.low), std::abs(x.high)), high);
}

std::int64_t floor_div(std::int64_t x, std::int64_t y) {
  const std::int64_t quotient = x / y;
  return (x % y != 0 && (x < 0) != (y < 0)) ? quotient - 1 : quotient;
}

Range quotient(Range x, Range y) {
  if (y.low <= 0) return kAny;
  return of_products({floor_div(x.low, y.low), floor_div(x.low, y.high), floor_div(x.high, y.low),
                      floor_div(x.high, y.high)});
}

Range remainder(Range x, Range y) {
  if (y.low <= 0) return kAny;
  if (x.low >= 0 && x.high < y.low) return x;
  return {0, y.high - 1};
}

Range unite(Range x, Range y) { return {std::min(x.low, y.low), std::max(x.high, y.high)}; }

Range leaf_range(const ir::Attention& attention, const ir::Node& node) {
  switch (node.op) {
    case Op::const_int_:
      return clip(std::get<std::int64_t>(node.attribute), std::get<std::int64_t>(node.attribute));
    case Op::batch_: return index_below(attention.dims.get(ir::Dim::B));
    case Op::head_: return index_below(attention.dims.get(ir::Dim::Hq));
    case Op::row_: return index_below(attention.dims.get(ir::Dim::Sq));
    case Op::column_: return index_below(attention.dims.get(ir::Dim::Skv));
    case Op::dim_: return {1, kAny.high};
    case Op::to_int_: return {0, 1};
    default: return kAny;
  }
}

}  // namespace

Range range_of(const ir::Attention& attention, ir::ExprId id) {
  const ir::Node& node = attention.dag[id];
  const auto operand = [&](std::size_t i) { return range_of(attention, node.operands[i]); };
  switch (node.op) {
    case Op::add_: {
      const Range x = operand(0), y = operand(1);
      return clip(x.low + y.low, x.high + y.high);
    }
    case Op::sub_: {
      const Range x = operand(0), y = operand(1);
      return clip(x.low - y.high, x.high - y.low);
    }
    case Op::mul_: {
      const Range x = operand(0), y = operand(1);
      return of_products({x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high});
    }
    case Op::neg_: return clip(-operand(0).high, -operand(0).low);
    case Op::abs_: return magnitude(operand(0));
    case Op::min_: {
      const Range x = operand(0), y = operand(1);
      return {std::min(x.low, y.low), std::min(x.high, y.high)};
    }
    case Op::max_: {
      const Range x = operand(0), y = operand(1);
      return {std::max(x.low, y.low), std::max(x.high, y.high)};
    }
    case Op::floordiv_: return quotient(operand(0), operand(1));
    case Op::mod_: return remainder(operand(0), operand(1));
    case Op::select_: return unite(operand(1), operand(2));
    default: return leaf_range(attention, node);
  }
}

}  // namespace attn::passes
