#include "compiler/rewrite/division.h"

#include <bit>

#include "compiler/masks/range.h"
#include "compiler/rewrite/reals.h"

namespace attn::rewrite {

bool may_round_up(const ir::Attention& attention, const ir::Node& division) {
  return masks::range_of(attention, division.operands[0]).low < 0 ||
         masks::range_of(attention, division.operands[1]).low < 1;
}

bool is_by_power_of_two(const ir::Dag& dag, const ir::Node& division) {
  const ir::ExprId divisor = division.operands[1];
  return dag[divisor].is(ir::Op::const_int_) && dag.integer_of(divisor) > 0 &&
         std::has_single_bit(static_cast<std::uint64_t>(dag.integer_of(divisor)));
}

bool is_exact_in_kernel(const ir::Attention& attention, const ir::Node& division) {
  if (may_round_up(attention, division)) return false;
  if (is_by_power_of_two(attention.dag, division)) return true;
  return masks::range_of(attention, division.operands[0]).high < kWholeInReals &&
         masks::range_of(attention, division.operands[1]).high < kWholeInReals;
}

}  // namespace attn::rewrite
