#include "compiler/passes/finite.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "compiler/passes/range.h"

namespace attn::passes {
namespace {

using ir::ExprId;
using ir::Op;

bool is_not_zero(const ir::Attention& attention, ExprId id) {
  const ir::Node& node = attention.dag[id];
  if (node.is(Op::const_real_)) return attention.dag.real_of(id) != 0;
  if (!node.is(Op::to_real_) || attention.dag[node.operands[0]].type != ir::Type::integer) {
    return false;
  }
  const Range range = range_of(attention, node.operands[0]);
  return range.low > 0 || range.high < 0;
}

// Given finite operands.
bool stays_finite(const ir::Attention& attention, ExprId id) {
  const ir::Node& node = attention.dag[id];
  switch (node.op) {
    case Op::const_real_: return std::isfinite(attention.dag.real_of(id));
    case Op::score_:
    case Op::add_:
    case Op::sub_:
    case Op::mul_:
    case Op::min_:
    case Op::max_:
    case Op::neg_:
    case Op::abs_:
    case Op::floor_:
    case Op::ceil_:
    case Op::tanh_:
    case Op::sigmoid_:
    case Op::erf_:
    case Op::sin_:
    case Op::cos_:
    case Op::select_:
    case Op::to_real_: return true;
    case Op::div_:
    case Op::floordiv_:
    case Op::mod_: return is_not_zero(attention, node.operands[1]);
    default: return false;
  }
}

}  // namespace

bool is_finite(const ir::Attention& attention, ExprId id) {
  const ExprId roots[] = {id};
  const std::vector<ExprId> below = ir::reachable(attention.dag, roots);
  return std::ranges::all_of(below, [&](ExprId each) {
    return attention.dag[each].type != ir::Type::real || stays_finite(attention, each);
  });
}

}  // namespace attn::passes
